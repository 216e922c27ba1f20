//! `tidings top`: shows how a gateway does on a terminal, again and again.
//!
//! * `documents` reads what the gateway says;
//! * `contents` makes lines of it, `cells` the texts in them;
//! * `screen` shows the lines, and obeys the keys.

mod cells;
mod contents;
mod documents;
mod screen;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Args;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use tidings::model::Timestamp;
use tokio::sync::mpsc;

use self::{
    documents::Documents,
    screen::{Answer, Pressed, Screen},
};
use super::{
    Failure,
    gateway::{Gateway, GatewayArgs, GatewayError},
    output::{is_terminal, print_text},
    runtime,
};

const EXAMPLES: &str = "\
Examples:
  tidings top
  tidings top --gateway https://tidings.example.org
  tidings top | head -30

Keys:
  q, Esc, Ctrl-C        end
  arrows, PgUp, PgDn    scroll; Home and End go to either end
  Tab, Shift-Tab        go to the next or the previous section
  p                     pause, and go on

If standard output is no terminal, it prints what there is once. The token needs the scope admin.

Exit codes:
  0  ended with a key, or printed
  1  the gateway refused or cannot be reached, or the terminal cannot be used
  2  wrong usage";

/// Time between two requests for the same document.
const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time for all documents.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum wait for a key until the screen is drawn again.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Show how a gateway does, and what flows, on a terminal.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Top {
    #[command(flatten)]
    gateway: GatewayArgs,
}

impl Top {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (url, gateway) = self.gateway.connect()?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1);
        let runtime = runtime(builder)?;
        let result = match is_terminal() {
            true => {
                let (answers, received) = mpsc::channel(1);
                let is_paused = Arc::new(AtomicBool::new(false));
                runtime.spawn(ask(gateway, answers, Arc::clone(&is_paused)));
                show(Screen::new(url.as_str()), received, &is_paused)
            }
            false => runtime
                .block_on(read(&gateway))
                .map_err(|reason| unanswered(url.as_str(), &reason))
                .and_then(|documents| print(&documents)),
        };
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        result
    }
}

fn unanswered(url: &str, reason: &str) -> Failure {
    Failure::Failed(format!("{url}: {reason}\n{}", screen::REMEDY))
}

fn print(documents: &Documents) -> Result<(), Failure> {
    print_text(&contents::plain(documents, Timestamp::now()))
}

/// Reads the documents, within a limit of time.
async fn read(gateway: &Gateway) -> Result<Documents, String> {
    let read = tokio::time::timeout(PATIENCE, Documents::read(gateway)).await;
    let late = |_| format!("no answer within {} seconds", PATIENCE.as_secs());
    read.map_err(late)?.map_err(|GatewayError { reason, .. }| reason)
}

/// Asks the gateway at intervals until nobody wants the answers.
async fn ask(gateway: Gateway, answers: mpsc::Sender<Answer>, is_paused: Arc<AtomicBool>) {
    loop {
        if !is_paused.load(Ordering::Relaxed) && answers.send(read(&gateway).await).await.is_err() {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Shows the screen until a key ends it.
fn show(screen: Screen, answers: mpsc::Receiver<Answer>, is_paused: &AtomicBool) -> Result<(), Failure> {
    let result = ratatui::try_init().and_then(|mut terminal| run(&mut terminal, screen, answers, is_paused));
    ratatui::restore();
    result.map_err(|error| Failure::Failed(format!("cannot use the terminal: {error}")))
}

fn run(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    mut answers: mpsc::Receiver<Answer>,
    is_paused: &AtomicBool,
) -> io::Result<()> {
    loop {
        while let Ok(answer) = answers.try_recv() {
            screen.receive(answer, Timestamp::now());
        }
        terminal.draw(|frame| screen.draw(frame, Timestamp::now()))?;
        if event::poll(DRAW_INTERVAL)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match screen.press(key) {
                Pressed::End => return Ok(()),
                Pressed::Other => is_paused.store(screen.is_paused(), Ordering::Relaxed),
            }
        }
    }
}
