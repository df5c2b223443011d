package launch

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

const (
	// outboxBytes is how much may wait for a rank before those who send to it wait.
	outboxBytes = 4 << 20
	// Its channel and pipes end with a rank, unless a process that left the rank's
	// group holds them. Such a one is looked for after strayPatience, and after
	// restPatience they are read no longer.
	strayPatience = 50 * time.Millisecond
	restPatience  = 5 * time.Second
)

// member is one rank, as the launcher sees it.
type member struct {
	g       *Group
	spec    Spec
	proc    *process
	started time.Time

	channel        *os.File
	outbox         *control.SendQueue
	stdout, stderr *sink
	pipes          [2]*os.File    // what stdout and stderr read
	errands        sync.WaitGroup // goroutines that may still tell something
	outcome        Outcome        // set before the group's end is counted

	// Guarded by the group's lock.
	joined    bool
	speaksGo  bool // it is a Go program, by its own account
	frozen    bool
	gone      bool // nothing more comes from it
	stopping  bool // the group's end has reached it
	killed    bool // by Kill
	verdict   State
	reason    string
	bye       bool
	byeReason string
	report    []byte
	entered   uint64 // barriers
	silence   silence
	joinFrom  time.Time // since when it may join
	leftAt    time.Time // when its channel ended
	concluded bool
	peak      int64 // resident memory
	replies   map[uint64]chan string
	waiting   string // what it was at when it was about to be ended
	quitFrom  int64  // where in stderr its goroutines begin; -1 if nowhere
}

func newMember(g *Group, s Spec) *member {
	m := &member{
		g: g, spec: s,
		outbox:   control.NewSendQueue(outboxBytes),
		quitFrom: -1,
		replies:  map[uint64]chan string{},
	}
	m.stdout = newSink(g.opts, s.Rank, Stdout, m.printer(Stdout))
	m.stderr = newSink(g.opts, s.Rank, Stderr, m.printer(Stderr))
	return m
}

func (m *member) printer(s Stream) func(string) {
	if m.g.teller.quiet {
		return nil
	}
	return func(line string) {
		e := m.event(Printed)
		e.Text, e.Stream = line, s
		m.g.teller.tell(e)
	}
}

func (m *member) event(k EventKind) Event {
	return Event{Rank: m.spec.Rank, Host: m.spec.Host, At: time.Now(), Kind: k}
}

func (m *member) tell(k EventKind, text string) {
	e := m.event(k)
	e.Text = text
	m.g.teller.tell(e)
}

// start starts the process; nothing is read from it yet.
func (m *member) start() error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	outR, outW, errR, errW, err := streams()
	if err != nil {
		ours.Close()
		return err
	}
	defer outW.Close()
	defer errW.Close()
	m.channel, m.pipes = ours, [2]*os.File{outR, errR}
	cmd := m.spec.command(len(m.g.members), m.g.guard.mark, theirs)
	cmd.Stdout, cmd.Stderr = outW, errW
	if m.proc, err = startProcess(cmd, m.spec.Start); err != nil {
		m.closeFiles()
		return err
	}
	m.started = time.Now()
	m.joinFrom = m.started
	m.g.guard.add(m.proc.pid)
	return nil
}

func (m *member) closeFiles() {
	m.channel.Close()
	m.pipes[0].Close()
	m.pipes[1].Close()
}

// run looks after the rank until it has ended.
func (m *member) run() {
	g := m.g
	g.ended.Add(1)
	e := m.event(Started)
	e.At, e.Text = m.started, fmt.Sprintf("process %d", m.proc.pid)
	g.teller.tell(e)
	var reading sync.WaitGroup
	reading.Go(m.listen)
	reading.Go(func() { m.stdout.drain(m.pipes[0]) })
	reading.Go(func() { m.stderr.drain(m.pipes[1]) })
	go func() {
		defer g.ended.Done()
		<-m.proc.done
		g.guard.remove(m.proc.pid)
		// What the rank had to say is in the kernel's buffers by now.
		rest := time.Now().Add(restPatience)
		_ = m.channel.SetReadDeadline(rest)
		_ = m.pipes[0].SetReadDeadline(rest)
		_ = m.pipes[1].SetReadDeadline(rest)
		stray := time.AfterFunc(strayPatience, func() { sweep(g.guard.mark, m.spec.Rank) })
		reading.Wait()
		stray.Stop()
		m.closeFiles()
		g.mu.Lock()
		m.concluded = true
		g.mu.Unlock()
		m.errands.Wait()
		m.conclude()
	}()
}

// errand runs f on a goroutine that the end of the rank waits for.
func (m *member) errand(f func()) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.concluded {
		m.errands.Go(f)
	}
}

// conclude judges the end of the rank and makes it known.
func (m *member) conclude() {
	g := m.g
	status := m.proc.status()
	g.mu.Lock()
	e := ending{
		verdict: m.verdict, reason: m.reason, killed: m.killed, stopped: m.stopping,
		joined: m.joined, mustJoin: g.opts.Join == JoinRequired,
		bye: m.bye, byeReason: m.byeReason, panicLine: m.stderr.panicked(), status: status,
	}
	m.outcome = Outcome{
		Rank: m.spec.Rank, Host: m.spec.Host, ExitCode: status.ExitStatus(), Joined: m.joined, Report: m.report,
		StateDump: m.wasAt(), MaxRSS: m.peak, Started: m.started, Ended: time.Now(),
	}
	alreadyBlamed := m.verdict != ""
	g.mu.Unlock()
	o := &m.outcome
	o.State, o.Error = e.judge()
	if status.Signaled() {
		o.Signal = signalName(status.Signal())
	}
	o.Stdout, o.Stderr = m.stdout.result(), m.stderr.result()
	state := m.proc.cmd.ProcessState
	o.User, o.System = state.UserTime(), state.SystemTime()
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok && o.MaxRSS == 0 {
		o.MaxRSS, o.MaxRSSIsUpperBound = int64(ru.Maxrss)*rssUnit, true //nolint:unconvert // it is an int32 on 32-bit machines
	}
	if !o.State.OK() && o.State != Stopped && !alreadyBlamed {
		g.blame(m, o.State, o.Error)
	}
	ended := m.event(Ended)
	ended.Outcome = o
	g.teller.tell(ended)
}
