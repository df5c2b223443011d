package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// quitPatience is how long a Go program has to print its goroutines and die.
const quitPatience = 5 * time.Second

// Dump asks every rank that runs what it is at. For one that does not answer
// until ctx ends, or within Options.DumpWait, it returns what the kernel shows of
// the process.
func (g *Group) Dump(ctx context.Context) map[int]string {
	ctx, cancel := context.WithTimeout(ctx, g.opts.DumpTimeout)
	defer cancel()
	texts := map[int]string{}
	for rank, a := range g.ask(ctx, g.members) {
		texts[rank] = a.text
	}
	return texts
}

// answer is what a rank is at.
type answer struct {
	text string
	own  bool // the rank said it itself
	mute bool // it was asked, and did not answer in time
}

// ask asks ranks what they are at, all at once, until ctx ends.
func (g *Group) ask(ctx context.Context, members []*member) map[int]answer {
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		answers = map[int]answer{}
	)
	for _, m := range members {
		all.Go(func() {
			if m.proc.over() {
				return
			}
			a := answer{own: true}
			text, err := m.request(ctx, control.Frame{Kind: control.Dump})
			if err != nil {
				a = answer{text: fmt.Sprintf("no answer: %v\n%s", err, kernelView(m.proc.pid))}
				a.mute = ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
			} else {
				a.text = text
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.spec.Rank] = a
		})
	}
	all.Wait()
	return maps.Clone(answers)
}

// Order sends an order to a rank and returns when it has been carried out, with
// the error that the rank's OnOrder returned.
func (g *Group) SendCommand(ctx context.Context, rank int, text string) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	name := rankName(rank, m.spec.Host)
	if len(text) > control.MaxCommand {
		return fmt.Errorf("order to %s: %d bytes, the limit is %d", name, len(text), control.MaxCommand)
	}
	refusal, err := m.request(ctx, control.Frame{Kind: control.Command, Body: []byte(text)})
	if err != nil {
		return fmt.Errorf("order %q to %s: %w", text, name, err)
	}
	if refusal != "" {
		return fmt.Errorf("order %q to %s: %s", text, name, refusal)
	}
	return nil
}

// request sends a frame to the rank and waits for the reply of the same number.
func (m *member) request(ctx context.Context, f control.Frame) (string, error) {
	g := m.g
	reply := make(chan string, 1)
	g.mu.Lock()
	var err error
	switch {
	case m.gone || m.proc.over():
		err = ErrEnded
	case !m.joined:
		err = errors.New("the rank has not joined")
	case f.Kind == control.Dump && m.frozen:
		err = errors.New("the rank is frozen")
	case f.Kind == control.Dump && m.verdict != "":
		err = fmt.Errorf("the rank is beyond asking: %s", m.reason)
	default:
		g.asked++
		f.Num = g.asked
		m.replies[f.Num] = reply
		err = m.outbox.PutUnbounded(f)
	}
	g.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case text, ok := <-reply:
		if !ok {
			return "", ErrEnded
		}
		return text, nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(m.replies, f.Num)
		return "", fmt.Errorf("no reply: %w", context.Cause(ctx))
	}
}

// lastWords notes what a rank that is about to be ended was at: its own answer,
// if it gave one; what the kernel shows, if not. A Go program that should have
// answered is made to print its goroutines, which kills it; mustAnswer says that
// even one that never joined should have.
func (m *member) lastWords(a answer, mustAnswer bool) {
	if m.proc.over() {
		return
	}
	if a.text == "" {
		a.text = kernelView(m.proc.pid)
	}
	g := m.g
	isGo := isGo(m.proc.pid)
	g.mu.Lock()
	m.stopping = true
	m.waiting = a.text
	quit := !a.own && (a.mute || mustAnswer || m.verdict != "") && !m.frozen && !m.bye && (m.speaksGo || isGo)
	if quit {
		m.quitFrom = m.stderr.written()
	}
	g.mu.Unlock()
	if quit && m.proc.quit() == nil {
		m.proc.overWithin(quitPatience)
	}
}

// wasAt is what lastWords noted, with what the rank printed since it was told to
// print its goroutines. The caller holds the lock, and has read all output.
func (m *member) wasAt() string {
	if m.quitFrom < 0 {
		return m.waiting
	}
	stacks := strings.TrimSpace(m.stderr.since(m.quitFrom))
	if stacks == "" {
		return m.waiting
	}
	return m.waiting + "\non SIGQUIT it printed:\n" + stacks
}
