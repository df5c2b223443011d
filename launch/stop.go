package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills the process group of a rank with SIGKILL. The outcome of the rank is
// Killed, which does not make the Group fail; other ranks get ErrEnded. If the rank has ended, Kill
// returns ErrEnded and the outcome does not change.
func (g *Group) Kill(rank int) error {
	return g.signal("kill", rank, unix.SIGKILL, func(m *member) { m.killed = true })
}

// Freeze stops the process group of a rank with SIGSTOP until Thaw. A frozen rank does
// not have to answer heartbeats.
func (g *Group) Freeze(rank int) error {
	return g.signal("freeze", rank, unix.SIGSTOP, func(m *member) { m.frozen = true })
}

// Thaw continues a frozen rank with SIGCONT, and restarts its timeouts.
func (g *Group) Thaw(rank int) error {
	return g.signal("thaw", rank, unix.SIGCONT, func(m *member) {
		m.frozen = false
		now := time.Now()
		m.heartbeat.lastHeard, m.heartbeat.joinStart, m.heartbeat.disconnectedAt = now, now, now
	})
}

// signal sends a signal to the process group of a rank, and calls sent if that succeeded. Both are
// under one lock, so that sent is called if and only if the rank had not ended.
func (g *Group) signal(op string, rank int, sig unix.Signal, sent func(*member)) error {
	m, err := g.member(rank)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := m.proc.signalGroup(sig); err != nil {
		return fmt.Errorf("%s %s: %w", op, rankName(m.spec.Rank, m.spec.Host), err)
	}
	sent(m)
	return nil
}

// Stop stops the group without waiting: it collects state dumps, sends SIGTERM, and SIGKILL after
// Options.TermGrace. Wait then returns reason, unless there is an earlier cause.
func (g *Group) Stop(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return
	}
	g.stopping = true
	g.cause = cmp.Or(g.cause, reason)
	// A slow OnEvent must not delay the stop.
	g.stopTasks.Go(func() {
		g.dispatcher.post(Event{Rank: -1, At: time.Now(), Kind: Stopping, Text: reason.Error()})
	})
	g.stopTasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), g.opts.DumpTimeout)
		defer cancel()
		endMembers(g.members, g.requestDumps(ctx), g.opts.TermGrace, errors.Is(reason, context.DeadlineExceeded))
	})
}

// fail records that a rank violated the control protocol or hangs, and stops the group, or only the rank if
// Options.KeepGoing is set. Only the first call has an effect, and no call after Kill has one.
func (m *member) fail(s State, why string) {
	g := m.g
	g.mu.Lock()
	first := m.failState == "" && !m.killed
	if first {
		m.failState, m.failReason = s, why
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.recordFailure(m, s, why)
	if g.opts.KeepGoing { // otherwise recordFailure has stopped the group
		const needStacks = true
		endMembers([]*member{m}, nil, g.opts.TermGrace, needStacks)
	}
	kind := Failing
	if s == Hung {
		kind = Silent
	}
	m.postEvent(kind, why)
}

// endMembers records the state of all members, with their dumps by rank, and then ends them: those whose
// stacks are needed with SIGQUIT, the others with SIGTERM, and after termGrace with SIGKILL. All are
// recorded, or have got a signal, before the first one ends: a rank that notices the end of another may
// exit by itself.
func endMembers(members []*member, dumps map[int]dump, termGrace time.Duration, needStacks bool) {
	var recording sync.WaitGroup
	quit := make([]bool, len(members))
	for i, m := range members {
		recording.Go(func() { quit[i] = m.recordState(dumps[m.spec.Rank], needStacks) })
	}
	recording.Wait()
	signalAll(members, func(i int) bool { return quit[i] }, unix.SIGQUIT, sigquitTimeout)
	signalAll(members, func(int) bool { return true }, unix.SIGTERM, termGrace)
	signalAll(members, func(int) bool { return true }, unix.SIGKILL, math.MaxInt64)
}

// signalAll sends a signal to the selected members that have not exited, and waits until they have, or for
// timeout.
func signalAll(members []*member, selected func(i int) bool, sig unix.Signal, timeout time.Duration) {
	var exits sync.WaitGroup
	for i, m := range members {
		if !selected(i) {
			continue
		}
		send := m.proc.signalGroup
		if sig == unix.SIGQUIT { // for the Go program alone, which prints its goroutines and exits
			send = func(all ...unix.Signal) error { return m.proc.signal(m.proc.pid, all...) }
		}
		// After a SIGSTOP, a process handles a signal only when it gets SIGCONT.
		if send(sig, unix.SIGCONT) == nil {
			exits.Go(func() { m.proc.exitedWithin(timeout) })
		}
	}
	exits.Wait()
}

// StopSignals are the signals on which a command stops its ranks early and still writes
// its report: SIGINT, SIGTERM and, unless it is ignored as under nohup(1), SIGHUP.
func StopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
