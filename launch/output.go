package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// maxLine is where a line without end is broken for events.
const maxLine = 16 << 10

// sink takes in one stream of a rank: all of it, always, so that no rank waits
// for want of a reader; but it keeps no more than its limits allow.
type sink struct {
	limit int64
	log   func() (io.WriteCloser, error) // opens the log at the first byte; nil for none
	line  func(string)                   // nil if nobody wants lines

	mu        sync.Mutex
	out       Output
	file      io.WriteCloser
	logged    int64
	tail      tail
	partial   []byte
	panicLine string
}

func newSink(o Options, rank int, s Stream, line func(string)) *sink {
	k := &sink{limit: o.LogLimit, line: line, tail: tail{size: o.TailBytes}}
	if o.LogDir != "" {
		path := filepath.Join(o.LogDir, fmt.Sprintf("rank%d.%v", rank, s))
		k.log = func() (io.WriteCloser, error) {
			k.out.Path = path
			return os.Create(path)
		}
	}
	return k
}

// drain reads until the stream ends or fails.
func (k *sink) drain(r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		k.take(buf[:n])
		if err != nil {
			k.close()
			return
		}
	}
}

func (k *sink) take(b []byte) {
	if len(b) == 0 {
		return
	}
	k.mu.Lock()
	room := k.limit - k.out.Bytes
	k.out.Bytes += int64(len(b))
	k.tail.add(b)
	within := b[:max(0, min(int64(len(b)), room))]
	k.write(within)
	lines := k.split(within)
	k.mu.Unlock()
	// Told without the lock: whoever listens may take its time.
	if k.line != nil {
		for _, l := range lines {
			k.line(l)
		}
	}
}

// write appends to the log until that fails.
func (k *sink) write(b []byte) {
	if k.log == nil || len(b) == 0 || k.out.Error != "" {
		return
	}
	var err error
	if k.file == nil {
		k.file, err = k.log()
	}
	if err == nil {
		var n int
		n, err = k.file.Write(b)
		k.logged += int64(n)
	}
	if err != nil {
		k.out.Error = err.Error()
	}
}

// split returns the lines that b completes.
func (k *sink) split(b []byte) []string {
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
		lines = append(lines, k.flush())
	}
	return lines
}

func (k *sink) flush() string {
	l := string(bytes.TrimSuffix(k.partial, []byte("\r")))
	k.partial = k.partial[:0]
	if k.panicLine == "" && isPanic(l) {
		k.panicLine = l
	}
	return l
}

// close ends the stream: the last line may lack its newline, and the log of a
// stream that was cut says so and has its end.
func (k *sink) close() {
	k.mu.Lock()
	var last []string
	if len(k.partial) > 0 {
		last = append(last, k.flush())
	}
	if over := k.out.Bytes - k.limit; over > 0 {
		end := k.tail.bytes()
		end = end[max(0, int64(len(end))-over):]
		notice := fmt.Sprintf("\n… cut, %d bytes more; the last %d of them:\n", over, len(end))
		logged := k.logged
		k.write(append([]byte(notice), end...))
		k.logged = logged
		last = append(last, fmt.Sprintf("… cut, %d bytes more", over))
	}
	if k.file != nil {
		if err := k.file.Close(); err != nil && k.out.Error == "" {
			k.out.Error = err.Error()
		}
		k.file = nil
		k.out.Dropped = k.out.Bytes - k.logged
	}
	k.mu.Unlock()
	if k.line != nil {
		for _, l := range last {
			k.line(l)
		}
	}
}

// result is what became of the stream so far.
func (k *sink) result() Output {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.out
	o.Tail = strings.ToValidUTF8(string(k.tail.bytes()), "\uFFFD")
	return o
}

// written is how many bytes have come; since returns what came after so many, as
// far as it is still there.
func (k *sink) written() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.Bytes
}

func (k *sink) since(n int64) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.tail.bytes()
	return string(b[max(0, int64(len(b))-(k.out.Bytes-n)):])
}

// panicked returns the line in which a Go program says why it ends.
func (k *sink) panicked() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.panicLine != "" {
		return k.panicLine
	}
	for l := range strings.Lines(string(k.tail.bytes())) {
		if isPanic(l) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

func isPanic(line string) bool {
	for _, begins := range []string{
		"panic: ", "fatal error: ",
		// The system refused a thread or memory.
		"runtime/cgo: pthread_create failed", "runtime: failed to create new OS thread", "runtime: out of memory", "runtime: cannot allocate",
	} {
		if strings.HasPrefix(line, begins) {
			return true
		}
	}
	return false
}

// tail keeps the last size bytes of what is added.
type tail struct {
	size int
	buf  []byte
}

func (t *tail) add(b []byte) {
	b = b[max(0, len(b)-t.size):]
	if len(t.buf)+len(b) > 2*t.size { // move seldom: twice the room, half the copies
		keep := t.buf[max(0, len(t.buf)-(t.size-len(b))):]
		t.buf = t.buf[:copy(t.buf, keep)]
	}
	t.buf = append(t.buf, b...)
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-t.size):] }
