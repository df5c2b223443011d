package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// consoleLimit is how much of a console is kept in memory: the end of it.
const consoleLimit = 256 << 10

// console is what a guest prints, and what can be learned from it.
type console struct {
	mu    sync.Mutex
	text  []byte
	total int64  // octets that were printed, kept or not
	line  []byte // that is not ended
	panic string // the line with which the kernel gave up

	ready  chan struct{} // closed when the guest says that it is
	failed chan string   // why it is not
	once   sync.Once
}

func newConsole() *console {
	return &console{ready: make(chan struct{}), failed: make(chan string, 1)}
}

// follow reads until the guest's end, and writes all to a file too, if there is one.
func (c *console) follow(from io.Reader, to *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		c.add(b[:n])
		if to != nil {
			_, _ = to.Write(b[:n]) // a full disk ends no lab
		}
		if err != nil {
			return
		}
	}
}

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
		c.look(string(line))
		c.line = rest
	}
	if len(c.line) > 4096 {
		c.line = nil // no line of ours
	}
}

// look learns from a line.
func (c *console) look(line string) {
	if strings.Contains(line, "Kernel panic - not syncing") && c.panic == "" {
		c.panic = line[strings.Index(line, "Kernel panic"):]
	}
	if strings.Contains(line, guest.ReadyMark) {
		c.once.Do(func() { close(c.ready) })
	}
	if _, why, found := strings.Cut(line, guest.FailedMark); found {
		select {
		case c.failed <- why:
		default:
		}
	}
}

// last are the last lines.
func (c *console) last(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimRight(string(c.text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (c *console) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

// since is what was printed after so many octets, as far as it is kept, and how many that
// makes.
func (c *console) since(after int64) (text string, upTo int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	skip := int64(len(c.text)) - (c.total - after)
	return string(c.text[min(max(skip, 0), int64(len(c.text))):]), c.total
}

func (c *console) panicked() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic
}

// GuestError is a guest that is no more, or never was.
type GuestError struct {
	ID      int
	Reason  string // what became of it
	Panic   bool   // its kernel gave up
	Console string // the last that it printed
}

func (e *GuestError) Error() string {
	text := fmt.Sprintf("guest %d %s", e.ID, e.Reason)
	if e.Console != "" {
		text += "; the last of its console:\n  " + strings.ReplaceAll(e.Console, "\n", "\n  ")
	}
	return text
}

// newsPatience is how long a machine may take to end behind its connections.
const newsPatience = 5 * time.Second

// lateNews is err, or why the guest is gone, if that is what is behind it: a
// connection may end a moment before the machine does. The context is one that ends
// with the guest.
func lateNews(ctx context.Context, err error) error {
	if !errors.Is(err, guest.ErrHungUp) {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(newsPatience):
		return err
	}
}

// ConsoleName is the file of a guest's console in Config.Consoles.
func ConsoleName(id int) string { return fmt.Sprintf("guest%d.console", id) }
