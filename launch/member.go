package launch

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

const (
	// sendQueueBytes bounds the frames queued for a rank; senders to it then block.
	sendQueueBytes = 4 << 20
	// When a rank exits, its channel and pipes reach EOF unless a process outside its process group
	// has them. After strayDelay the launcher kills those; after drainTimeout it stops reading.
	strayDelay   = 50 * time.Millisecond
	drainTimeout = 5 * time.Second
)

// member is the launcher's state of one rank.
type member struct {
	g    *Group
	spec Spec
	proc *process
	channel
	stdout, stderr *outputReader
	tasks          sync.WaitGroup // goroutines that may post events

	// Guarded by the group's lock.
	exitInfo
	outcome         Outcome // complete before g.running.Done
	heartbeat       heartbeat
	isGoProgram     bool // from its hello
	frozen          bool
	barriersEntered uint64 // number of barriers
	finishing       bool   // no task may start
	sigquitOffset   int64  // offset of the goroutine dump in stderr; -1 if none
}

// channel is the control channel to a rank.
type channel struct {
	file         *os.File
	greeting     firstBytes    // on file
	conn         *control.Conn // on greeting
	calls        control.Calls // dumps and commands
	disconnected bool          // no more frames will be handled; guarded by the group's lock
}

// newMember returns the member of a group for a rank that is not started yet.
func newMember(g *Group, s Spec) *member {
	m := &member{g: g, spec: s, sigquitOffset: -1, outcome: Outcome{Rank: s.Rank, Host: s.Host}}
	m.mustJoin = g.opts.Join == JoinRequired
	m.stdout = newOutputReader(g.opts, s.Rank, Stdout, m.lineHandler(Stdout))
	m.stderr = newOutputReader(g.opts, s.Rank, Stderr, m.lineHandler(Stderr))
	return m
}

// lineHandler returns the function that posts Printed events for a stream, or nil to discard lines.
func (m *member) lineHandler(s Stream) func(string) {
	if m.g.dispatcher.discard {
		return nil
	}
	return func(line string) {
		e := m.newEvent(Printed)
		e.Text, e.Stream = line, s
		m.g.dispatcher.post(e)
	}
}

func (m *member) newEvent(k EventKind) Event {
	return Event{Rank: m.spec.Rank, Host: m.spec.Host, At: time.Now(), Kind: k}
}

func (m *member) postEvent(k EventKind, text string) {
	e := m.newEvent(k)
	e.Text = text
	m.g.dispatcher.post(e)
}

// start starts the process, and registers it with the guard, which kills it if the launcher dies.
// run reads its output and its control channel.
func (m *member) start() error {
	local, remote, err := socketPair()
	if err != nil {
		return err
	}
	defer remote.Close()
	m.file = local
	stdout, err := m.stdout.openPipe()
	if err != nil {
		m.closeFiles()
		return err
	}
	defer stdout.Close()
	stderr, err := m.stderr.openPipe()
	if err != nil {
		m.closeFiles()
		return err
	}
	defer stderr.Close()
	m.greeting.Stream = local
	m.conn = control.New(&m.greeting, control.Config{
		Names: kindNames, QueueBytes: sendQueueBytes, WriteTimeout: m.g.opts.HangTimeout, KeepWaiting: m.isFrozen, // a frozen rank does not read
	})
	cmd := m.spec.command(m.g.size, m.g.guard.groupID, remote)
	cmd.Stderr = stderr
	if !m.spec.isProxy() { // its standard output is the control channel
		cmd.Stdout = stdout
	}
	if m.proc, err = startProcess(cmd, m.spec.Start); err != nil {
		m.closeFiles()
		return err
	}
	m.outcome.Started = time.Now()
	m.heartbeat.joinStart = m.outcome.Started
	m.g.guard.add(m.proc.pid)
	return nil
}

// files returns the launcher's ends of the control channel and of the output pipes.
func (m *member) files() []*os.File { return []*os.File{m.file, m.stdout.pipe, m.stderr.pipe} }

func (m *member) closeFiles() {
	for _, f := range m.files() {
		f.Close()
	}
}

// run starts the goroutines that serve the rank until it has ended. Strays, its processes outside
// its process group, may keep the pipes open: run kills them after strayDelay.
func (m *member) run() {
	g := m.g
	g.running.Add(1)
	e := m.newEvent(Started)
	e.At, e.Text = m.outcome.Started, fmt.Sprintf("process %d", m.proc.pid)
	g.dispatcher.post(e)
	var reading sync.WaitGroup
	reading.Go(m.serveChannel)
	reading.Go(func() { m.stdout.drain(m.stdout.pipe) })
	reading.Go(func() { m.stderr.drain(m.stderr.pipe) })
	go func() {
		defer g.running.Done()
		<-m.proc.done
		g.guard.remove(m.proc.pid)
		// All data that the rank sent is in kernel buffers now.
		deadline := time.Now().Add(drainTimeout)
		for _, f := range m.files() {
			_ = f.SetReadDeadline(deadline)
		}
		stray := time.AfterFunc(strayDelay, func() { killStrays(g.guard.groupID, m.spec.Rank) })
		reading.Wait()
		stray.Stop()
		m.closeFiles()
		g.mu.Lock()
		m.finishing = true
		g.mu.Unlock()
		m.tasks.Wait()
		m.finish()
	}()
}

// goTask runs f on a new goroutine. finish is called only when all of these have returned; after
// the rank has ended, goTask does nothing.
func (m *member) goTask(f func()) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.finishing {
		m.tasks.Go(f)
	}
}

// finish computes the outcome of the rank and posts the Ended event.
func (m *member) finish() {
	g, o, state := m.g, &m.outcome, m.proc.cmd.ProcessState
	g.mu.Lock()
	m.panicLine, m.status = m.stderr.findPanic(), m.proc.status()
	o.State, o.Error = m.classify()
	o.ExitCode, o.Joined, o.Ended = m.status.ExitStatus(), m.joined, time.Now()
	if m.status.Signaled() {
		o.Signal = signalName(m.status.Signal())
	}
	o.Stdout, o.Stderr = m.stdout.snapshot(), m.stderr.snapshot()
	o.User, o.System = state.UserTime(), state.SystemTime()
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok && o.MaxRSS == 0 { // Maxrss is at least the launcher's RSS at the fork
		o.MaxRSS, o.MaxRSSIsUpperBound = int64(ru.Maxrss)*maxrssUnit, true //nolint:unconvert // it is an int32 on 32-bit machines
	}
	if m.sigquitOffset >= 0 { // the rank printed its goroutines
		if stacks := strings.TrimSpace(m.stderr.tailSince(m.sigquitOffset)); stacks != "" {
			o.StateDump += "\non SIGQUIT it printed:\n" + stacks
		}
	}
	unexpected := !o.State.OK() && o.State != Stopped && m.failState == "" // else fail has recorded it
	g.mu.Unlock()
	if unexpected {
		g.recordFailure(m, o.State, o.Error)
	}
	ended := m.newEvent(Ended)
	ended.Outcome = o
	g.dispatcher.post(ended)
}
