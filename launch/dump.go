package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// maxCalls limits the dumps and commands that a rank has not answered.
const maxCalls = 1024

// sigquitTimeout limits the time a Go program takes to print its goroutines and exit.
const sigquitTimeout = 5 * time.Second

// Dump requests a state dump (see Conn.OnDump) from every running rank. If a rank does not reply
// before ctx ends or within Options.DumpTimeout, its dump is the state of its process in /proc.
func (g *Group) Dump(ctx context.Context) map[int]string {
	ctx, cancel := context.WithTimeout(ctx, g.opts.DumpTimeout)
	defer cancel()
	texts := map[int]string{}
	for rank, d := range g.requestDumps(ctx) {
		texts[rank] = d.text
	}
	return texts
}

// dump describes the state of a rank.
type dump struct {
	text     string
	fromRank bool // the rank replied; otherwise text is from /proc
	timedOut bool // the rank did not reply in time
}

// requestDumps requests dumps from all running ranks concurrently. It waits for the replies until
// ctx ends. The dump of a rank that does not reply is the state of its process in /proc.
func (g *Group) requestDumps(ctx context.Context) map[int]dump {
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		dumps = map[int]dump{}
	)
	for _, m := range g.members {
		all.Go(func() {
			if m.proc.exited() {
				return
			}
			text, err := m.request(ctx, control.Frame{Kind: kindDump})
			d := dump{text: text, fromRank: err == nil}
			if err != nil {
				d.text = fmt.Sprintf("no answer: %v\n%s", err, procState(m.proc.pid))
				d.timedOut = ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
			}
			mu.Lock()
			defer mu.Unlock()
			dumps[m.spec.Rank] = d
		})
	}
	all.Wait()
	return dumps
}

// SendCommand sends a command to a rank, waits for its reply, and returns the error
// of the rank's OnCommand function.
func (g *Group) SendCommand(ctx context.Context, rank int, text string) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("command: %w", err)
	}
	name := rankName(rank, m.spec.Host)
	if len(text) > maxCommand {
		return fmt.Errorf("command to %s: %d bytes, the limit is %d", name, len(text), maxCommand)
	}
	failure, err := m.request(ctx, control.Frame{Kind: kindCommand, Body: []byte(text)})
	if err != nil {
		return fmt.Errorf("command %q to %s: %w", text, name, err)
	}
	if failure != "" {
		return fmt.Errorf("command %q to %s: %s", text, name, failure)
	}
	return nil
}

// request sends f, a request for a dump or a command, to the rank, and returns the reply. It sends
// no dump request to a frozen or failed rank, which would probably not reply.
func (m *member) request(ctx context.Context, f control.Frame) (string, error) {
	g := m.g
	reply := make(chan string, 1)
	g.mu.Lock()
	var err error
	switch {
	case m.disconnected || m.proc.exited():
		err = ErrEnded
	case !m.joined:
		err = errors.New("the rank has not joined")
	case f.Kind == kindDump && m.frozen:
		err = errors.New("the rank is frozen")
	case f.Kind == kindDump && m.failState != "":
		err = fmt.Errorf("the rank has failed: %s", m.failReason)
	}
	g.mu.Unlock()
	if err == nil {
		f.Num, err = m.calls.Begin(maxCalls, func(body []byte, ok bool) {
			if ok {
				reply <- strings.ToValidUTF8(string(body), "\uFFFD")
			}
			close(reply)
		})
	}
	if err == nil {
		if err = m.conn.QueueNow(f); err != nil {
			m.calls.Forget(f.Num)
		}
	}
	switch {
	case errors.Is(err, control.ErrClosed):
		return "", ErrEnded
	case err != nil:
		return "", err
	}
	select {
	case text, ok := <-reply:
		if !ok {
			return "", ErrEnded
		}
		return text, nil
	case <-ctx.Done():
		m.calls.Forget(f.Num)
		return "", fmt.Errorf("no reply: %w", context.Cause(ctx))
	}
}

// recordState records the state dump d of a rank, or its state in /proc if d is empty, before the
// launcher ends the rank. It reports whether the rank should get SIGQUIT, on which a Go program prints its
// goroutines and exits: if needStacks is set, or the rank failed or did not reply in time. It should not if it
// is another program, if the launcher has frozen it as a fault, or if it has called Close or written d itself.
func (m *member) recordState(d dump, needStacks bool) (quit bool) {
	if m.proc.exited() {
		return false
	}
	if d.text == "" {
		d.text = procState(m.proc.pid)
	}
	g := m.g
	isGo := isGoProcess(m.proc.pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	m.stopping = true
	m.outcome.StateDump = d.text
	needStacks = needStacks || d.timedOut || m.failState != ""
	printsStacks := (m.isGoProgram || isGo) && !m.frozen && !m.byeReceived && !m.spec.isProxy()
	quit = needStacks && printsStacks && !d.fromRank
	if quit {
		m.sigquitOffset = m.stderr.snapshot().Bytes
	}
	return quit
}
