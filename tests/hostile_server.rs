//! An HTTP server that does everything a server should not.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

static BOMB: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(gzip_bomb);

/// Start it; the port it listens on.
pub async fn start() -> u16 {
    tokio::task::spawn_blocking(|| BOMB.len()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, port));
        }
    });
    port
}

async fn answer(mut stream: TcpStream, port: u16) -> std::io::Result<()> {
    let mut head = vec![0; 8192];
    let length = stream.read(&mut head).await?;
    let head = String::from_utf8_lossy(&head[..length]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    match path {
        "/slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        "/never" => std::future::pending().await,
        "/huge" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(&[b'x'; 65536]).await?;
            }
        }
        "/gzipbomb" => {
            // A gigabyte of zeros is a megabyte of deflate blocks: each stored
            // here as the same fixed block, repeated.
            let bomb = &*BOMB;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(bomb).await
        }
        "/headers" => {
            let mut text = "HTTP/1.1 200 OK\r\n".to_owned();
            for number in 0..100_000 {
                text.push_str(&format!("X-{number}: x\r\n"));
            }
            text.push_str("Content-Length: 0\r\n\r\n");
            stream.write_all(text.as_bytes()).await
        }
        "/redirect-private" => {
            redirect(&mut stream, "http://169.254.169.254/latest/meta-data").await
        }
        "/redirect-loop" => {
            redirect(&mut stream, &format!("http://127.0.0.1:{port}/redirect-loop")).await
        }
        "/redirect-file" => redirect(&mut stream, "file:///etc/passwd").await,
        "/deep" => json(&mut stream, &"[".repeat(100_000)).await,
        "/badjson" => json(&mut stream, "{").await,
        "/close" => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await,
        _ => json(&mut stream, "{\"ok\":true}").await,
    }
}

async fn redirect(stream: &mut TcpStream, to: &str) -> std::io::Result<()> {
    let text = format!(
        "HTTP/1.1 302 Found\r\nLocation: {to}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).await
}

async fn json(stream: &mut TcpStream, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// Valid gzip of about a gigabyte of zeros, without compressing a gigabyte: one
/// fixed-Huffman block that repeats "258 bytes from one back" over and over.
fn gzip_bomb() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(0b1, 1); // last block
    bits.push(0b01, 2); // fixed codes
    bits.code(0x30, 8); // literal 0
    for _ in 0..4_000_000 {
        bits.code(0b1100_0101, 8); // length 258
        bits.code(0, 5); // distance 1
    }
    bits.code(0, 7); // end of block
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    gzip.extend(bits.finish());
    gzip.extend([0; 8]);
    gzip
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    current: u8,
    count: u8,
}

impl Bits {
    /// Least significant bit first.
    fn push(&mut self, value: u16, count: u8) {
        for bit in 0..count {
            self.bit((value >> bit) & 1);
        }
    }

    /// Huffman codes go most significant bit first.
    fn code(&mut self, value: u16, count: u8) {
        for bit in (0..count).rev() {
            self.bit((value >> bit) & 1);
        }
    }

    fn bit(&mut self, bit: u16) {
        self.current |= (bit as u8) << self.count;
        self.count += 1;
        if self.count == 8 {
            self.bytes.push(std::mem::take(&mut self.current));
            self.count = 0;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(self.current);
        self.bytes
    }
}

/// Resident memory of this process, in bytes.
pub fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
