//! Triggers in the database of a test that note writes for a duty by a node that does not have it.
//!
//! A session has the name of its node. The transaction of a write keeps the row of the duty until it ends, so a trigger
//! within the transaction finds the holder of that time.

/// Statements that create the triggers, on the tables of the gateway.
const TRIGGERS: &str = "
    CREATE SCHEMA audit;
    CREATE TABLE audit.strays (
        duty text, writer text, holder text, written timestamptz DEFAULT clock_timestamp(), content jsonb);
    CREATE FUNCTION audit.check_holder(duty text, content jsonb) RETURNS void LANGUAGE sql AS $$
        INSERT INTO audit.strays (duty, writer, holder, content)
        SELECT duty, writer, holder, content
        FROM (SELECT split_part(current_setting('application_name'), '/', 2) AS writer,
            (SELECT n.name FROM tidings.duties d JOIN tidings.nodes n ON n.instance = d.holder WHERE d.name = duty)
                AS holder) found
        WHERE writer IS DISTINCT FROM holder
    $$;
    CREATE FUNCTION audit.check_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.json::jsonb ->> 'source' = ANY (TG_ARGV) THEN
            PERFORM audit.check_holder('source/' || (NEW.json::jsonb ->> 'source'), to_jsonb(NEW.seq));
        END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION audit.check_subscription() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM audit.check_holder('subscription/' || (to_jsonb(NEW) ->> TG_ARGV[0]), to_jsonb(NEW));
        RETURN NULL;
    END $$;
    CREATE FUNCTION audit.check_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM audit.check_holder(TG_ARGV[0] || coalesce(to_jsonb(OLD) ->> TG_ARGV[1], ''), to_jsonb(OLD.seq));
        RETURN NULL;
    END $$;
    CREATE TRIGGER retention AFTER DELETE ON tidings.changes
        FOR EACH ROW EXECUTE FUNCTION audit.check_removal('retention');
    CREATE TRIGGER follow_ups AFTER DELETE ON tidings.incomplete_changes
        FOR EACH ROW EXECUTE FUNCTION audit.check_removal('follow-ups/', 'source');
    CREATE TRIGGER audit AFTER UPDATE OF cursor ON tidings.subscriptions
        FOR EACH ROW EXECUTE FUNCTION audit.check_subscription('name');
    CREATE TRIGGER audit AFTER INSERT ON tidings.dead_letters
        FOR EACH ROW EXECUTE FUNCTION audit.check_subscription('subscription');";

/// Creates the triggers with a function that runs SQL. The sources with these names run under a duty.
pub(crate) fn start(query: impl Fn(&str) -> String, sources: &[&str]) {
    let names: Vec<_> = sources.iter().map(|name| format!("'{name}'")).collect();
    let changes = format!(
        "CREATE TRIGGER audit AFTER INSERT ON tidings.changes
        FOR EACH ROW EXECUTE FUNCTION audit.check_change({})",
        names.join(", ")
    );
    query(&format!("{TRIGGERS}{changes}"));
}

/// Panics if a node has written for a duty that it did not have.
pub(crate) fn assert_no_strays(query: impl Fn(&str) -> String) {
    let strays = "SELECT coalesce(string_agg(s::text, ' '), '') FROM (SELECT * FROM audit.strays LIMIT 20) s";
    assert_eq!(query(strays), "", "writes of nodes without the duty");
    // The test itself has no duty.
    query("UPDATE subscriptions SET cursor = cursor");
    let are_noted = "SELECT (SELECT count(*) FROM subscriptions) = (SELECT count(*) FROM audit.strays)";
    assert_eq!(query(are_noted), "t", "the audit notes strays");
}
