//! Private S3-compatible server (moto), which a test can stop and start again. Its objects are in memory, so they are gone
//! after a restart.

use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    gateway::{PATIENCE, client, free_address},
    python,
};

pub(crate) const BUCKET: &str = "tidings";

/// Key that the tests look for in logs and responses.
pub(crate) const SECRET_KEY: &str = "hush-hush-hush-hush-hush";

pub(crate) struct S3Server {
    address: String,
    process: Child,
}

impl S3Server {
    /// Starts a server with an empty bucket.
    pub(crate) async fn start() -> Self {
        let address = free_address();
        let server = Self { process: Self::launch(&address), address };
        server.make_bucket().await;
        server
    }

    fn launch(address: &str) -> Child {
        let (host, port) = address.split_once(':').unwrap();
        let program = python::environment("moto").with_file_name("moto_server");
        let mut server = Command::new(program);
        server.args(["-H", host, "-p", port]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = server.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "the S3 server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        process
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the lines of a configuration that uses the bucket.
    pub(crate) fn lines(&self) -> String {
        format!(
            "[files.s3]\nendpoint = \"{}\"\nbucket = \"{BUCKET}\"\nprefix = \"a/b\"\naccess_key = \"AKIDEXAMPLE\"\n\
             secret_key = \"{SECRET_KEY}\"\n",
            self.url()
        )
    }

    pub(crate) async fn make_bucket(&self) {
        let made = client().put(format!("{}/{BUCKET}", self.url())).send().await.unwrap();
        assert!(made.status().is_success(), "{made:?}");
    }

    /// Returns the names of all objects.
    pub(crate) async fn objects(&self) -> Vec<String> {
        let list = client().get(format!("{}/{BUCKET}?list-type=2", self.url())).send().await.unwrap();
        let list = list.text().await.unwrap();
        let keys = list.split("<Key>").skip(1);
        keys.map(|key| key.split("</Key>").next().unwrap().to_owned()).collect()
    }

    /// Returns the cache control and the media type of an object. A reader needs the key.
    pub(crate) fn headers(&self, name: &str) -> (String, String) {
        let code = "import boto3, sys; o = boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1', \
                    aws_access_key_id='AKIDEXAMPLE', aws_secret_access_key='x').head_object(Bucket=sys.argv[2], \
                    Key=sys.argv[3]); print(o['CacheControl']); print(o['ContentType'])";
        let mut head = Command::new(python::environment("moto"));
        let head = head.args(["-c", code, &self.url(), BUCKET, name]).output().unwrap();
        assert!(head.status.success(), "{name}: {}", String::from_utf8_lossy(&head.stderr));
        let lines = String::from_utf8(head.stdout).unwrap();
        let (cache, media_type) = lines.trim_end().split_once('\n').unwrap();
        (cache.to_owned(), media_type.to_owned())
    }

    /// Replaces an object, or makes it.
    pub(crate) fn put(&self, name: &str, content: &str) {
        let code = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1', \
                    aws_access_key_id='AKIDEXAMPLE', aws_secret_access_key='x').put_object(Bucket=sys.argv[2], \
                    Key=sys.argv[3], Body=sys.argv[4].encode())";
        let mut put = Command::new(python::environment("moto"));
        let put = put.args(["-c", code, &self.url(), BUCKET, name, content]).output().unwrap();
        assert!(put.status.success(), "{put:?}");
    }

    /// Kills the server with its objects.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the server again, without a bucket.
    pub(crate) fn start_again(&mut self) {
        self.process = Self::launch(&self.address);
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
