//! The screen of `tidings top`: its contents, and its keys.

use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line, Text},
    widgets::Paragraph,
};
use tidings::model::Timestamp;

use super::{
    cells::folded,
    contents::{Section, sections, verdict},
    documents::Documents,
};
use crate::command::output::cell;

/// Remedy if the gateway does not answer.
pub(super) const REMEDY: &str =
    "see whether it runs (`tidings serve`); --gateway gives its URL, and TIDINGS_TOKEN the token of an administrator";

/// Maximum number of lines of the verdict.
const MAX_VERDICT: usize = 8;

const KEYS: &str = "q end  p pause  Tab next section  arrows PgUp PgDn scroll";

/// The documents of the gateway, or why it does not answer.
pub(super) type Answer = Result<Documents, String>;

/// Meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    /// The program ends.
    End,
    /// The screen has changed, or nothing has.
    Other,
}

/// Time and reason of a failure to reach the gateway.
struct Failure {
    since: Timestamp,
    reason: String,
}

/// State of the screen.
pub(super) struct Screen {
    gateway: String,
    documents: Option<Documents>,
    /// Time of the documents.
    read: Option<Timestamp>,
    failure: Option<Failure>,
    is_paused: bool,
    /// Number of lines of the sections above the first visible one.
    scrolled: usize,
    /// Lines at which the sections begin, number of all lines, and number of the visible ones, as last drawn.
    begins: Vec<usize>,
    lines: usize,
    visible: usize,
}

impl Screen {
    pub(super) fn new(gateway: &str) -> Self {
        Self {
            gateway: cell(gateway),
            documents: None,
            read: None,
            failure: None,
            is_paused: false,
            scrolled: 0,
            begins: Vec::new(),
            lines: 0,
            visible: 0,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Takes an answer of the gateway. While the screen is paused, nothing changes.
    pub(super) fn receive(&mut self, answer: Answer, now: Timestamp) {
        if self.is_paused {
            return;
        }
        match answer {
            Ok(documents) => (self.documents, self.read, self.failure) = (Some(documents), Some(now), None),
            Err(reason) => {
                let since = self.failure.as_ref().map_or(now, |failure| failure.since);
                self.failure = Some(Failure { since, reason: cell(&reason) });
            }
        }
    }

    /// Obeys a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        let page = self.visible.saturating_sub(1).max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Pressed::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Pressed::End,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scrolled += page,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = self.lines,
            KeyCode::Tab => {
                let next = self.begins.iter().find(|begin| **begin > self.scrolled);
                self.scrolled = next.copied().filter(|_| self.scrolled < self.furthest()).unwrap_or(0);
            }
            KeyCode::BackTab => {
                let previous = self.begins.iter().rev().find(|begin| **begin < self.scrolled);
                self.scrolled = previous.copied().unwrap_or(self.lines);
            }
            _ => {}
        }
        self.scrolled = self.scrolled.min(self.furthest());
        Pressed::Other
    }

    /// Returns the furthest that the sections can be scrolled.
    fn furthest(&self) -> usize {
        self.lines.saturating_sub(self.visible)
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now: Timestamp) {
        let verdict = self.verdict(usize::from(frame.area().width));
        let verdict_lines = u16::try_from(verdict.len()).unwrap_or(u16::MAX);
        let parts = [
            Constraint::Length(1),
            Constraint::Length(verdict_lines),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, top, _, body, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(now)), head);
        frame.render_widget(Paragraph::new(verdict), top);
        let (lines, begins) = self.body(now);
        (self.begins, self.lines, self.visible) = (begins, lines.len(), usize::from(body.height));
        self.scrolled = self.scrolled.min(self.furthest());
        let scrolled = u16::try_from(self.scrolled).unwrap_or(u16::MAX);
        let mut text = Text::from(lines);
        if self.failure.is_some() {
            // The last known state.
            text = Text::from_iter(text.lines.into_iter().map(|line| Line::raw(line.to_string())));
            text = text.style(Style::new().fg(Color::DarkGray));
        }
        frame.render_widget(Paragraph::new(text).scroll((scrolled, 0)), body);
        let keys = Line::styled(KEYS, Style::new().fg(Color::DarkGray));
        frame.render_widget(Paragraph::new(keys), foot);
    }

    fn head(&self, now: Timestamp) -> Line<'static> {
        let read = match self.read {
            _ if self.is_paused => "paused; p goes on".to_owned(),
            Some(read) => format!("{} s ago", now.millis().saturating_sub(read.millis()).max(0) / 1000),
            None => "waiting for the gateway".to_owned(),
        };
        let version = self.documents.as_ref().and_then(|documents| documents.status["version"].as_str());
        let name = version.map_or_else(|| "Tidings".to_owned(), |version| format!("Tidings {}", cell(version)));
        Line::styled(format!("{name}  {}  {read}", self.gateway), Style::new().add_modifier(Modifier::BOLD))
    }

    /// Returns the verdict in lines of at most so many columns.
    fn verdict(&self, columns: usize) -> Vec<Line<'static>> {
        let red = Style::new().fg(Color::Red);
        if let Some(Failure { since, reason }) = &self.failure {
            let what = folded(&format!("✗ no answer since {since}: {reason}"), columns).into_iter();
            let what = what.map(|line| Line::styled(line, red.add_modifier(Modifier::BOLD)));
            return what.chain(folded(REMEDY, columns).into_iter().map(Line::raw)).collect();
        }
        let Some(documents) = &self.documents else { return Vec::new() };
        let mut lines = verdict(&documents.status, columns);
        if lines.len() > MAX_VERDICT {
            lines.truncate(MAX_VERDICT - 1);
            lines.push(Line::styled("… and more: `tidings status`", red));
        }
        lines
    }

    /// Returns the lines of all sections, and the numbers of those with which they begin.
    fn body(&self, now: Timestamp) -> (Vec<Line<'static>>, Vec<usize>) {
        let (mut lines, mut begins) = (Vec::new(), Vec::new());
        let Some(documents) = &self.documents else { return (lines, begins) };
        for Section { title, lines: of_section } in sections(documents, now) {
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            begins.push(lines.len());
            lines.push(Line::styled(title, Style::new().add_modifier(Modifier::BOLD)));
            lines.extend(of_section);
        }
        (lines, begins)
    }
}

#[cfg(test)]
mod tests;
