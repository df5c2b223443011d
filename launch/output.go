package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	// maxLine is the length at which lines are split for events.
	maxLine = 16 << 10
	// tailBytes is the size of Output.Tail.
	tailBytes = 64 << 10
)

// outputReader reads an output stream of a rank to its end, so that the rank never
// blocks, and keeps only as much as the limits allow.
type outputReader struct {
	pipe    *os.File                       // read end
	limit   int64                          // of the log and of lines, in bytes
	openLog func() (io.WriteCloser, error) // called at the first byte; nil for no log
	onLine  func(string)                   // may be nil

	mu        sync.Mutex
	result    Output
	file      io.WriteCloser
	logged    int64
	tail      tail
	partial   []byte
	panicLine string
}

// newOutputReader returns the reader of a stream. It calls onLine, if that is not nil, for every
// line.
func newOutputReader(o Options, rank int, s Stream, onLine func(string)) *outputReader {
	k := &outputReader{limit: o.LogLimit, onLine: onLine, tail: tail{size: tailBytes}}
	if o.LogDir != "" {
		path := filepath.Join(o.LogDir, fmt.Sprintf("rank%d.%v", rank, s))
		k.openLog = func() (io.WriteCloser, error) {
			k.result.Path = path
			return os.Create(path)
		}
	}
	return k
}

// openPipe creates the pipe of the stream and returns the write end.
func (k *outputReader) openPipe() (write *os.File, err error) {
	k.pipe, write, err = os.Pipe()
	return write, err
}

// drain reads until the stream ends or fails.
func (k *outputReader) drain(r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		k.consume(buf[:n])
		if err != nil {
			k.close()
			return
		}
	}
}

// consume counts the next bytes of the stream and adds them to the tail. It logs those within the
// limit, and reports the lines that they complete.
func (k *outputReader) consume(b []byte) {
	if len(b) == 0 {
		return
	}
	k.mu.Lock()
	room := k.limit - k.result.Bytes
	k.result.Bytes += int64(len(b))
	k.tail.add(b)
	within := b[:max(0, min(int64(len(b)), room))]
	k.writeLog(within)
	lines := k.splitLines(within)
	k.mu.Unlock()
	k.report(lines) // without the lock: onLine may block
}

// report calls onLine for every line.
func (k *outputReader) report(lines []string) {
	if k.onLine != nil {
		for _, l := range lines {
			k.onLine(l)
		}
	}
}

// writeLog appends to the log, unless an earlier write has failed.
func (k *outputReader) writeLog(b []byte) {
	if k.openLog == nil || len(b) == 0 || k.result.Error != "" {
		return
	}
	var err error
	if k.file == nil {
		k.file, err = k.openLog()
	}
	if err == nil {
		var n int
		n, err = k.file.Write(b)
		k.logged += int64(n)
	}
	if err != nil {
		k.result.Error = err.Error()
	}
}

// splitLines returns the lines that b completes. It splits lines longer than maxLine.
func (k *outputReader) splitLines(b []byte) []string {
	var lines []string
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n')
		whole := n >= 0
		if !whole {
			n = len(b)
		}
		n = min(n, maxLine-len(k.partial))
		k.partial = append(k.partial, b[:n]...)
		b = b[n:]
		if whole && len(b) > 0 && b[0] == '\n' {
			b = b[1:]
		} else if len(k.partial) < maxLine {
			continue
		}
		lines = append(lines, k.finishLine())
	}
	return lines
}

// finishLine returns the current line and begins the next.
func (k *outputReader) finishLine() string {
	l := string(bytes.TrimSuffix(k.partial, []byte("\r")))
	k.partial = k.partial[:0]
	if k.panicLine == "" && isPanicLine(l) {
		k.panicLine = l
	}
	return l
}

// close handles the last line if it lacks a newline. To a log that reached its limit it appends the
// number of bytes that are missing, and the tail.
func (k *outputReader) close() {
	k.mu.Lock()
	var last []string
	if len(k.partial) > 0 {
		last = append(last, k.finishLine())
	}
	if over := k.result.Bytes - k.limit; over > 0 {
		end := k.tail.bytes()
		end = end[max(0, int64(len(end))-over):]
		notice := fmt.Sprintf("\n… cut, %d bytes more; the last %d of them:\n", over, len(end))
		logged := k.logged
		k.writeLog(append([]byte(notice), end...))
		k.logged = logged // the notice and the tail do not count
		last = append(last, fmt.Sprintf("… cut, %d bytes more", over))
	}
	if k.file != nil {
		if err := k.file.Close(); err != nil && k.result.Error == "" {
			k.result.Error = err.Error()
		}
		k.file = nil
		k.result.Dropped = k.result.Bytes - k.logged
	}
	k.mu.Unlock()
	k.report(last)
}

// snapshot returns the result so far.
func (k *outputReader) snapshot() Output {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.result
	o.Tail = strings.ToValidUTF8(string(k.tail.bytes()), "\uFFFD")
	return o
}

// tailSince returns the bytes after offset n, as far as the tail contains them.
func (k *outputReader) tailSince(n int64) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.tail.bytes()
	return string(b[max(0, int64(len(b))-(k.result.Bytes-n)):])
}

// findPanic returns the first line that reports a Go panic or fatal error.
func (k *outputReader) findPanic() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.panicLine != "" {
		return k.panicLine
	}
	for l := range strings.Lines(string(k.tail.bytes())) {
		if isPanicLine(l) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// isPanicLine reports whether a line begins the report of a Go panic or fatal error.
func isPanicLine(line string) bool {
	return slices.ContainsFunc([]string{
		"panic: ", "fatal error: ",
		// Out of threads or memory.
		"runtime/cgo: pthread_create failed", "runtime: failed to create new OS thread", "runtime: out of memory", "runtime: cannot allocate",
	}, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

// tail keeps the last size bytes of a stream.
type tail struct {
	size int
	buf  []byte
}

// add appends bytes of the stream. It drops old ones, but keeps at least the last t.size.
func (t *tail) add(b []byte) {
	b = b[max(0, len(b)-t.size):]
	if len(t.buf)+len(b) > 2*t.size { // twice the size, to copy less often
		keep := t.buf[max(0, len(t.buf)-(t.size-len(b))):]
		t.buf = t.buf[:copy(t.buf, keep)]
	}
	t.buf = append(t.buf, b...)
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-t.size):] }
