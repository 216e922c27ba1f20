//! Tests of the screen on a terminal in memory, with names that control terminals or are wide.

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};
use serde_json::{Value, json};

use super::{Documents, Pressed, Screen, Timestamp};

fn now() -> Timestamp {
    Timestamp::parse("2026-11-29T12:00:00Z").unwrap()
}

/// Sixty slots, of which these are the newest.
fn slots(newest: &[u64]) -> Value {
    let unknown = std::iter::repeat_n(Value::Null, 60 - newest.len());
    unknown.chain(newest.iter().map(|number| json!(number))).collect()
}

/// Documents with names that control a terminal, reorder text or are wide.
fn documents() -> Documents {
    let hostile = "\u{1b}[2J\u{202e}olr";
    Documents {
        status: json!({
            "status": "degraded", "version": "0.1.0\u{7}",
            "problems": [
                { "level": "error", "text": format!("the subscription {hostile} does not deliver: 401") },
                { "level": "warning", "text": "期刊 has messages in the quarantine" }
            ],
            "journal": { "first": 1, "head": 1234, "freeBytes": 5_000_000_000_u64 }
        }),
        sources: json!({ "sources": [
            { "name": "fedora", "transport": "stomp", "connection": { "state": "connected" },
              "lastEvent": "2026-11-29T11:59:20Z", "messages": { "quarantined": 0 } },
            { "name": "期刊的投稿系统和全文仓库", "transport": "http", "messages": { "quarantined": 37 } }
        ]}),
        harvests: json!({ "harvests": [
            { "source": "theses", "state": "waiting", "next": "2026-11-29T12:30:00Z",
              "run": { "state": "completed", "updated": "2026-11-29T11:30:00Z", "records": 12, "changes": 3 } }
        ]}),
        subscriptions: json!({ "subscriptions": [
            { "name": hostile, "state": "retrying", "lag": { "changes": 40 }, "deadLetters": 2 }
        ]}),
        flow: json!({
            "changes": slots(&[0, 3, 6, 12, 9]),
            "sources": [{ "name": "fedora", "changes": slots(&[1, 2, 0, 12, 9]) }],
            "subscriptions": [{ "name": hostile, "delivered": slots(&[0, 0, 4]) }]
        }),
    }
}

/// Draws the screen, and returns its lines without blanks at their ends.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character has the cell after it, too.
            x += u16::try_from(ratatui::text::Span::raw(symbol).width().max(1)).unwrap();
        }
        line.trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> Pressed {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn screen_fits_on_a_small_terminal() {
    let mut screen = Screen::new("http://127.0.0.1:8395/");
    assert_eq!(drawn(&mut screen, 80, 24)[0], "Tidings  http://127.0.0.1:8395/  waiting for the gateway");
    screen.receive(Ok(documents()), now());
    let expected = "\
Tidings 0.1.0\\u{7}  http://127.0.0.1:8395/  0 s ago
degraded: 1 error, 1 warning
✗ the subscription \\u{1b}[2J\\u{202e}olr does not deliver: 401
▲ 期刊 has messages in the quarantine

FLOW
changes                                                         ▁▃▅█▆
         30 in the last hour, 12 in the last minute
journal  changes 1 to 1234, 5000 MB free

SOURCES             STATE       LAST EVENT  LAST HOUR        CHANGES   QUARANT.
fedora              connected   40 s                     ▂█  24        0
期刊的投稿系统和…   hook                                     0         37

HARVESTS            STATE      NEXT       LAST RUN  RESULT     RECORDS  CHANGES
theses              waiting    in 30 min  30 min    completed  12       3

SUBSCRIPTIONS       STATE        BEHIND     LAST HOUR        SENT      DEAD
\\u{1b}[2J\\u{202e}…  retrying     40                       █  4         2




q end  p pause  Tab next section  arrows PgUp PgDn scroll";
    let expected: Vec<_> = expected.lines().collect();
    assert_eq!(drawn(&mut screen, 80, 24), expected);
}

#[test]
fn screen_scrolls_within_its_lines() {
    let mut screen = Screen::new("http://h/");
    screen.receive(Ok(documents()), now());
    let first = |screen: &mut Screen| drawn(screen, 80, 12)[5].clone();
    assert_eq!(first(&mut screen), "FLOW");
    for (key, begin) in [
        (KeyCode::Tab, "SOURCES"),
        (KeyCode::Down, "fedora"),
        (KeyCode::Up, "SOURCES"),
        (KeyCode::BackTab, "FLOW"),
        (KeyCode::PageDown, "SOURCES"),
        (KeyCode::Home, "FLOW"),
        (KeyCode::Up, "FLOW"),
        (KeyCode::End, ""),
        (KeyCode::PageDown, ""),
        (KeyCode::Tab, "FLOW"),
    ] {
        assert_eq!(press(&mut screen, key), Pressed::Other);
        let shown = first(&mut screen);
        assert_eq!(shown.split(' ').next(), Some(begin), "{key:?}: {shown}");
    }
    for (width, height) in [(1, 1), (3, 2), (10, 4)] {
        drawn(&mut screen, width, height);
    }
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Pressed::End);
    assert_eq!(
        (press(&mut screen, KeyCode::Char('q')), press(&mut screen, KeyCode::Esc)),
        (Pressed::End, Pressed::End)
    );
}

#[test]
fn screen_shows_what_was_known_when_the_gateway_does_not_answer() {
    let mut screen = Screen::new("http://h/");
    screen.receive(Err("connection refused\u{1b}[2J".to_owned()), now());
    let lines = drawn(&mut screen, 120, 12);
    assert_eq!(lines[1], "✗ no answer since 2026-11-29T12:00:00.000Z: connection refused\\u{1b}[2J");
    assert!(lines[2].contains("`tidings serve`") && lines[2].contains("TIDINGS_TOKEN"), "{lines:#?}");
    let narrow = drawn(&mut screen, 40, 12);
    assert!(narrow[1].ends_with("since") && narrow[3..8].concat().contains("TIDINGS_TOKEN"), "{narrow:#?}");

    screen.receive(Ok(documents()), now());
    screen.receive(Err("connection refused".to_owned()), now());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| screen.draw(frame, now())).unwrap();
    // The color of the state of the first source, below the title of its section.
    let state_color = |terminal: &Terminal<TestBackend>| {
        let buffer = terminal.backend().buffer();
        let title = (0..24).find(|y| buffer[(0, *y)].symbol() == "S" && buffer[(1, *y)].symbol() == "O").unwrap();
        buffer[(20, title + 1)].fg
    };
    assert_eq!(state_color(&terminal), Color::DarkGray, "what was known is grey");
    screen.receive(Ok(documents()), now());
    terminal.draw(|frame| screen.draw(frame, now())).unwrap();
    assert_eq!(state_color(&terminal), Color::Green);
}

#[test]
fn screen_stays_while_it_is_paused() {
    let mut screen = Screen::new("http://h/");
    screen.receive(Ok(documents()), now());
    press(&mut screen, KeyCode::Char('p'));
    assert!(screen.is_paused());
    screen.receive(Err("gone".to_owned()), now());
    let lines = drawn(&mut screen, 80, 12);
    assert!(lines[0].ends_with("paused; p goes on") && lines[1].starts_with("degraded"), "{lines:#?}");
    press(&mut screen, KeyCode::Char('p'));
    screen.receive(Err("gone".to_owned()), now());
    assert!(drawn(&mut screen, 80, 12)[1].starts_with("✗ no answer"));
}
