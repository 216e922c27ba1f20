//! The page on screens of several sizes, in both colour schemes, and for keyboards.

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

/// Returns texts whose contrast with their background is less than 4.5 to 1 (WCAG 2.2, 1.4.3).
const FAINT: &str = "(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data] };
    const light = (color) => rgb(color).slice(0, 3).map((part) => part / 255).map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4).reduce((sum, part, at) => sum + part * [.2126, .7152, .0722][at], 0);
    const background = (node) => { for (; node; node = node.parentElement) { const color = getComputedStyle(node).backgroundColor; if (rgb(color)[3] > 0) return color } return 'white' };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || node.closest('svg, .unseen, .skip, noscript, script, dialog:not([open])')) continue;
        const [one, other] = [light(getComputedStyle(node).color), light(background(node))].sort((a, b) => b - a);
        if ((one + .05) / (other + .05) < 4.5) faint.push([walker.currentNode.data, getComputedStyle(node).color, background(node)]);
    }
    return faint;
})()";

/// Returns controls and texts that are hidden, or reach beyond the screen.
const HIDDEN: &str = "[...document.querySelectorAll('header *, nav a, main h2, main button, main a, main input, main select, main dt, main dd, main td:not(:empty), main svg text')]
    .filter(one => { const box = one.getBoundingClientRect(); return !one.checkVisibility() || box.right > innerWidth + 1 || box.left < -1 || !box.width && one.textContent.trim() })
    .map(one => one.outerHTML)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_fits_every_screen_and_has_contrast_in_both_schemes() {
    let receiver = Receiver::start(|_, _| Reply::of(500)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{}", webhook("index", &receiver.url(), ""));
    let gateway = gateway(folder.path(), &lines);
    for number in 1..=9 {
        post(&gateway, number).await;
    }
    assert_eq!(gateway.post("content-change", "application/json", "{}").await.0, 422);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("2 things need attention");
    for scheme in ["light", "dark"] {
        page.browser.emulate("prefers-color-scheme", scheme);
        for route in [
            "",
            "sources",
            "subscriptions",
            "subscriptions/index",
            "changes",
            "changes/1",
            "quarantine",
            "quarantine/1",
            "gateway",
        ] {
            page.go(route);
            page.until_loaded();
            // 640 is a screen of 1280 pixels at 200 %.
            for width in [320, 360, 640, 768, 1280] {
                page.browser.resize(width, 800);
                page.browser.until("document.documentElement.scrollWidth <= innerWidth", &json!(true));
                // The picture is drawn again for the new width.
                page.browser.until(HIDDEN, &json!([]));
            }
            assert_eq!(page.value(FAINT), json!([]), "{scheme} {route}");
        }
    }
    let small = "[...document.querySelectorAll('button, nav a, td a, input, select')].filter(one => one.getBoundingClientRect().height < 24).map(one => one.outerHTML)";
    assert_eq!(page.value(small), json!([]));
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn focus_and_open_parts_survive_refreshes() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n{}{}",
        webhook("b", &receiver.url(), ""),
        webhook("a", &receiver.url(), "")
    );
    let gateway = gateway(folder.path(), &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_says("[aria-label=Subscriptions] tbody", "b");
    page.value("document.querySelector('[aria-label=\"Pause b\"]').focus(); window.kept = document.activeElement");
    for number in 1..=2 {
        post(&gateway, number).await;
        page.until_says("[aria-label='Newest changes'] tbody", &format!("/objects/{number}"));
        assert_eq!(page.value("document.activeElement === window.kept"), Value::Bool(true));
    }
    // The state of the subscription turns the same button, which keeps the focus.
    page.click("Pause b");
    page.browser.until("document.activeElement.ariaLabel", &json!("Resume b"));
    page.go("subscriptions/b");
    page.click("Skip to now b");
    page.browser.until("document.activeElement.textContent", &json!("Cancel"));
    page.browser.press("Escape", 27);
    page.browser.until("document.querySelector('dialog').open", &json!(false));
    page.browser.until("document.activeElement.ariaLabel", &json!("Skip to now b"));
    assert_eq!(gateway.json("/subscriptions/b").await["cursor"], json!(2));
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_keeps_still_and_stays_readable_in_the_colours_of_the_reader() {
    let receiver = Receiver::start(|_, _| Reply::of(500)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{}", webhook("index", &receiver.url(), ""));
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("1 thing needs attention");
    page.until_says("main", "Last week");
    page.browser.emulate("prefers-reduced-motion", "reduce");
    let moving = "[...document.querySelectorAll('*')].filter(one => { const style = getComputedStyle(one); return style.animationName !== 'none' || style.transitionDuration !== '0s' || style.scrollBehavior !== 'auto' }).length";
    assert_eq!(page.value(moving), 0);
    page.browser.emulate("forced-colors", "active");
    page.browser.until("matchMedia('(forced-colors: active)').matches", &json!(true));
    for width in [320, 640, 1280] {
        page.browser.resize(width, 800);
        page.browser.until("document.documentElement.scrollWidth <= innerWidth", &json!(true));
        assert_eq!(page.value(HIDDEN), json!([]), "{width}");
        // Texts, frames and bars of the flow differ from what is behind them.
        let merged = "[...document.querySelectorAll('main svg a')].flatMap(box => {
            const [rect, bars] = ['rect', '.bars'].map(part => getComputedStyle(box.querySelector(part)));
            const behind = rect.fill;
            return [rect.stroke, bars.fill, ...[...box.querySelectorAll('text')].map(text => getComputedStyle(text).fill)].filter(color => color === behind);
        })";
        assert_eq!(page.value(merged), json!([]), "{width}");
        // The present part and a pressed button have a frame, because their colours are gone.
        let framed = "['nav [aria-current]', '[aria-pressed=true]'].map(one => getComputedStyle(document.querySelector(one)).outlineStyle)";
        assert_eq!(page.value(framed), json!(["solid", "solid"]));
    }
    page.assert_quiet();
}
