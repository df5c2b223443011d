package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// consoleLimit is how much of a console is kept in memory.
const consoleLimit = 256 << 10

// console keeps the output of a guest, and detects when it is ready or has failed.
type console struct {
	mu    sync.Mutex
	text  []byte
	total int64  // bytes printed
	line  []byte // incomplete
	panic string // first line of a kernel panic

	ready  chan struct{} // closed when the guest is ready
	failed chan string   // reason of a failed boot
	once   sync.Once
}

// newConsole returns an empty console.
func newConsole() *console {
	return &console{ready: make(chan struct{}), failed: make(chan string, 1)}
}

// copyFrom adds the guest's output from a reader until the guest ends. It also writes the output
// to the file log, unless that is nil.
func (c *console) copyFrom(from io.Reader, log *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		c.add(b[:n])
		if log != nil {
			_, _ = log.Write(b[:n]) // a full disk does not stop the lab
		}
		if err != nil {
			return
		}
	}
}

// add appends output of the guest, keeps the last consoleLimit bytes, and parses complete lines.
func (c *console) add(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = bytes.ReplaceAll(b, []byte("\r"), nil)
	c.text = append(c.text, b...)
	c.total += int64(len(b))
	if over := len(c.text) - consoleLimit; over > 0 {
		c.text = append(c.text[:0], c.text[over:]...)
	}
	c.line = append(c.line, b...)
	for {
		line, rest, ended := bytes.Cut(c.line, []byte("\n"))
		if !ended {
			break
		}
		c.parseLine(string(line))
		c.line = rest
	}
	const maxLine = 4096
	if len(c.line) > maxLine {
		c.line = nil // too long for the ReadyMark or FailedMark of a guest
	}
}

// parseLine detects the guest's ReadyMark and FailedMark, and a kernel panic.
func (c *console) parseLine(line string) {
	if strings.Contains(line, "Kernel panic - not syncing") && c.panic == "" {
		c.panic = line[strings.Index(line, "Kernel panic"):]
	}
	if strings.Contains(line, ReadyMark) {
		c.once.Do(func() { close(c.ready) })
	}
	if _, why, found := strings.Cut(line, FailedMark); found {
		select {
		case c.failed <- why:
		default:
		}
	}
}

// tail returns the last n lines.
func (c *console) tail(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lastLines(string(c.text), n, "\n")
}

// lastLines returns the last n lines of a text with a separator between them.
func lastLines(text string, n int, separator string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], separator)
}

// since returns the output from an offset on, as far as it is kept. upTo is the number of all bytes
// that were printed, and the offset for the next call.
func (c *console) since(offset int64) (text string, upTo int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	skip := int64(len(c.text)) - (c.total - offset) // negative if bytes from offset on are not kept
	return string(c.text[min(max(skip, 0), int64(len(c.text))):]), c.total
}

// panicLine returns the first line of a kernel panic; empty if there was none.
func (c *console) panicLine() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic
}

// GuestError is returned if a guest has ended or did not boot.
type GuestError struct {
	ID      int
	Reason  string
	Panic   bool   // kernel panic
	Console string // last lines
}

// Error names the guest and the reason, and quotes the end of its console.
func (e *GuestError) Error() string {
	text := fmt.Sprintf("guest %d %s", e.ID, e.Reason)
	if e.Console != "" {
		text += "; the last of its console:\n  " + strings.ReplaceAll(e.Console, "\n", "\n  ")
	}
	return text
}

// guestExitTimeout is how long a machine may take to end after its connections.
const guestExitTimeout = 5 * time.Second

// guestExitError returns err or, if err is ErrConnectionClosed and the guest ends within
// guestExitTimeout, the reason of that end: the cause of ctx, which ends with the guest.
func guestExitError(ctx context.Context, err error) error {
	if !errors.Is(err, ErrConnectionClosed) {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(guestExitTimeout):
		return err
	}
}

// ConsoleName returns the name of a guest's file in Config.Consoles.
func ConsoleName(id int) string { return fmt.Sprintf("guest%d.console", id) }

// kernelErrorLine matches lines in which Linux reports an internal error. Plain
// warnings are not matched.
var kernelErrorLine = regexp.MustCompile(`BUG: |Oops: |Kernel panic - |kernel BUG at |general protection fault|stack segment: |double fault|` +
	`Unable to handle kernel |rcu: INFO: |soft lockup|hard LOCKUP|blocked for more than \d+ seconds|refcount_t: |list_(add|del) corruption|` +
	`KASAN: |KFENCE: |Slab corruption|(Poison|Redzone|Object padding) overwritten|Object already free`)

// timestamp matches the timestamp and caller before a line.
var timestamp = regexp.MustCompile(`^\[[ .0-9]+\](\[[ TC0-9]+\])? ?`)

// Errors returns the lines of a console with internal errors of the kernel, without timestamps.
func Errors(console string) (lines []string) {
	for line := range strings.Lines(console) {
		if kernelErrorLine.MatchString(line) {
			lines = append(lines, strings.TrimSpace(timestamp.ReplaceAllString(line, "")))
		}
	}
	return lines
}

// ErrorReport returns up to maxLines lines of a console from the first kernel error on, or the last
// maxLines lines if there is no kernel error.
func ErrorReport(console string, maxLines int) string {
	lines := strings.Split(strings.TrimRight(console, "\n"), "\n")
	for i, line := range lines {
		if kernelErrorLine.MatchString(line) {
			return strings.Join(lines[i:min(len(lines), i+maxLines)], "\n")
		}
	}
	return lastLines(console, maxLines, "\n")
}
