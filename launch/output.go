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
	r := &outputReader{limit: o.LogLimit, onLine: onLine, tail: tail{size: tailBytes}}
	if o.LogDir != "" {
		path := filepath.Join(o.LogDir, fmt.Sprintf("rank%d.%v", rank, s))
		r.openLog = func() (io.WriteCloser, error) {
			r.result.Path = path
			return os.Create(path)
		}
	}
	return r
}

// openPipe creates the pipe of the stream and returns the write end.
func (r *outputReader) openPipe() (write *os.File, err error) {
	r.pipe, write, err = os.Pipe()
	return write, err
}

// drain reads until the stream ends or fails.
func (r *outputReader) drain(stream io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := stream.Read(buf)
		r.consume(buf[:n])
		if err != nil {
			r.close()
			return
		}
	}
}

// consume counts the next bytes of the stream and adds them to the tail. It logs those within the
// limit, and reports the lines that they complete.
func (r *outputReader) consume(b []byte) {
	if len(b) == 0 {
		return
	}
	r.mu.Lock()
	room := r.limit - r.result.Bytes
	r.result.Bytes += int64(len(b))
	r.tail.add(b)
	within := b[:max(0, min(int64(len(b)), room))]
	r.writeLog(within)
	lines := r.splitLines(within)
	r.mu.Unlock()
	r.report(lines) // without the lock: onLine may block
}

// report calls onLine for every line.
func (r *outputReader) report(lines []string) {
	if r.onLine != nil {
		for _, l := range lines {
			r.onLine(l)
		}
	}
}

// writeLog appends to the log, unless an earlier write has failed.
func (r *outputReader) writeLog(b []byte) {
	if r.openLog == nil || len(b) == 0 || r.result.Error != "" {
		return
	}
	var err error
	if r.file == nil {
		r.file, err = r.openLog()
	}
	if err == nil {
		var n int
		n, err = r.file.Write(b)
		r.logged += int64(n)
	}
	if err != nil {
		r.result.Error = err.Error()
	}
}

// splitLines returns the lines that b completes. It splits lines longer than maxLine.
func (r *outputReader) splitLines(b []byte) []string {
	var lines []string
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n')
		hasNewline := n >= 0
		if !hasNewline {
			n = len(b)
		}
		n = min(n, maxLine-len(r.partial))
		r.partial = append(r.partial, b[:n]...)
		b = b[n:]
		switch {
		case hasNewline && b[0] == '\n':
			b = b[1:]
		case len(r.partial) < maxLine:
			continue // b was the beginning of a line
		}
		lines = append(lines, r.finishLine())
	}
	return lines
}

// finishLine returns the current line and begins the next. It keeps the first line that reports a
// Go panic, for findPanic.
func (r *outputReader) finishLine() string {
	l := string(bytes.TrimSuffix(r.partial, []byte("\r")))
	r.partial = r.partial[:0]
	if r.panicLine == "" && isPanicLine(l) {
		r.panicLine = l
	}
	return l
}

// close handles the last line if it lacks a newline. To a log that reached its limit it appends the
// number of bytes that are missing, and the tail.
func (r *outputReader) close() {
	r.mu.Lock()
	var last []string
	if len(r.partial) > 0 {
		last = append(last, r.finishLine())
	}
	if over := r.result.Bytes - r.limit; over > 0 {
		end := r.tail.bytes()
		end = end[max(0, int64(len(end))-over):]
		notice := fmt.Sprintf("\n… cut, %d bytes more; the last %d of them:\n", over, len(end))
		logged := r.logged
		r.writeLog(append([]byte(notice), end...))
		r.logged = logged // the notice and the tail do not count
		last = append(last, fmt.Sprintf("… cut, %d bytes more", over))
	}
	if r.file != nil {
		if err := r.file.Close(); err != nil && r.result.Error == "" {
			r.result.Error = err.Error()
		}
		r.file = nil
		r.result.Dropped = r.result.Bytes - r.logged
	}
	r.mu.Unlock()
	r.report(last)
}

// snapshot returns the result so far.
func (r *outputReader) snapshot() Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.result
	o.Tail = strings.ToValidUTF8(string(r.tail.bytes()), "\uFFFD")
	return o
}

// tailSince returns the bytes after offset n, as far as the tail contains them.
func (r *outputReader) tailSince(n int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.tail.bytes()
	return string(b[max(0, int64(len(b))-(r.result.Bytes-n)):])
}

// findPanic returns the first line of the output that reports a Go panic or fatal error; "" if there
// is none.
func (r *outputReader) findPanic() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.panicLine != "" {
		return r.panicLine
	}
	for l := range strings.Lines(string(r.tail.bytes())) { // lines beyond the limit are not split
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
