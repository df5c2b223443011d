package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
)

// HostSpec describes the ranks of one host.
type HostSpec struct {
	Host  string
	Ranks int // the ranks of hosts are consecutive
	// Cmd runs a proxy on the host, a program that calls JoinProxy: for example a remote shell with the
	// command line of that program. The control channel is its standard input and output. Files are not
	// passed on.
	Cmd Command
	// Job is sent to the proxy when it joins; at most 64 MiB.
	Job []byte
}

// Hosts is a set of running ranks on several hosts.
type Hosts struct {
	proxies *Group // its ranks are indexes of hosts
	opts    Options
	specs   []HostSpec

	mu       sync.Mutex
	outcomes []Outcome // by rank
	lost     []*HostError
	stopping bool
	overdue  bool // proxies have not stopped their ranks in time
	hardStop *time.Timer
}

// HostError is the failure of a proxy: without it, nothing is known of the ranks on its host.
type HostError struct {
	Host   string
	Text   string // the reason in one line
	State  State  // Failed if the proxy sent the reason, or violated the protocol
	Joined bool   // the proxy called JoinProxy
	// ExitCode is that of HostSpec.Cmd; -1 if a signal ended it. Stderr is the end of its standard error.
	ExitCode int
	Stderr   string
}

func (e *HostError) Error() string { return fmt.Sprintf("host %s: %s", e.Host, e.Text) }

// stopMargin is the time in which a proxy must send its outcomes after it has stopped its ranks.
const stopMargin = 10 * time.Second

// StartHosts starts a proxy for every host, which starts the ranks there. The ranks are those of one
// group, as with Start: they stop when one fails or a proxy is lost (see Options.KeepGoing), when ctx is
// cancelled, or by Stop. The caller must call Wait.
//
// JoinTimeout, Heartbeat and HangTimeout are those of proxies, which have their own options for ranks.
// MaxReport is the largest possible, and there is no LogDir. Events of a proxy, Joined and lines of its
// standard error, have the rank -1.
func StartHosts(ctx context.Context, specs []HostSpec, opts Options) (*Hosts, error) {
	h := &Hosts{opts: opts, specs: specs}
	ranks := 0
	proxies := make([]Spec, len(specs))
	for i, s := range specs {
		if s.Ranks < 1 {
			return nil, fmt.Errorf("launch: host %s: %d ranks", s.Host, s.Ranks)
		}
		proxies[i] = Spec{Rank: i, Host: s.Host, Cmd: s.Cmd, Job: s.Job, ranks: rankRange{ranks, s.Ranks}}
		for range s.Ranks {
			h.outcomes = append(h.outcomes, Outcome{Rank: ranks, Host: s.Host, State: Stopped, Error: "its host was lost"})
			ranks++
		}
	}
	switch {
	case ranks > MaxRanks:
		return nil, fmt.Errorf("launch: %d ranks, the limit is %d", ranks, MaxRanks)
	case opts.LogDir != "":
		return nil, errors.New("launch: ranks on several hosts have no LogDir")
	}
	var err error
	if h.opts, err = opts.withDefaults(); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	// The proxies are not the failing ranks: the others go on when one of them ends, until Stop.
	forProxies := h.opts
	forProxies.KeepGoing, forProxies.OnEvent = true, h.handleEvent
	forProxies.MaxMessage, forProxies.MaxReport = h.opts.MaxMessage+envelopeLen, maxFrame
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("launch: cancelled before the start: %w", err)
	}
	h.proxies = &Group{size: len(proxies)}
	if _, err := start(context.WithoutCancel(ctx), proxies, forProxies, h.proxies); err != nil {
		return nil, err
	}
	unregister := context.AfterFunc(ctx, func() { h.Stop(context.Cause(ctx)) })
	go func() {
		<-h.proxies.Done()
		unregister()
	}()
	return h, nil
}

// Wait waits until every rank and every proxy has ended, and returns the outcomes by rank, and the
// proxies that were lost, whose ranks are Stopped.
func (h *Hosts) Wait() (outcomes []Outcome, lost []*HostError) {
	<-h.proxies.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hardStop != nil {
		h.hardStop.Stop()
	}
	return h.outcomes, h.lost
}

// SendCommand sends a command to the proxy on a host, waits for its reply, and returns the error of the
// function that the proxy has set with Proxy.OnCommand.
func (h *Hosts) SendCommand(ctx context.Context, host int, text string) error {
	return h.proxies.SendCommand(ctx, host, text)
}

// Stop stops all ranks without waiting: proxies stop theirs as Group.Stop does, and those that have not
// joined, or do not end in time, are stopped themselves.
func (h *Hosts) Stop(reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop(reason)
}

// stop does the work of Stop. The caller holds the lock.
func (h *Hosts) stop(reason error) {
	if h.stopping {
		return
	}
	h.stopping = true
	timedOut := errors.Is(reason, context.DeadlineExceeded)
	for _, m := range h.proxies.members {
		m.stopProxy(timedOut)
	}
	limit := h.opts.DumpTimeout + sigquitTimeout + h.opts.TermGrace + stopMargin
	h.hardStop = time.AfterFunc(limit, func() {
		h.mu.Lock()
		h.overdue = true
		h.mu.Unlock()
		h.proxies.Stop(reason)
	})
}

// stopProxy asks the proxy to stop its ranks, or ends it if it has not joined: then it has none.
func (m *member) stopProxy(timedOut bool) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.joined {
		m.stopping = true
		_ = m.proc.signalGroup(unix.SIGTERM) // it may have ended
		return
	}
	f := control.Frame{Kind: kindStop}
	if timedOut {
		f.Num = 1
	}
	_ = m.conn.QueueNow(f)
}

// handleEvent handles an event of a rank or a proxy.
func (h *Hosts) handleEvent(e Event) {
	h.mu.Lock()
	var ended []Outcome
	switch {
	case e.fromProxy && e.Kind == Stopping: // a proxy stops its ranks because one has failed
		h.stop(errors.New(e.Text))
	case !e.fromProxy && e.Kind == Ended:
		ended = h.handleEnd(e.Rank, e.Outcome)
	}
	h.mu.Unlock()
	if h.opts.OnEvent == nil {
		return
	}
	for i := range ended {
		o := &ended[i]
		h.opts.OnEvent(Event{Rank: o.Rank, Host: o.Host, At: o.Ended, Kind: Ended, Outcome: o})
	}
	switch {
	case e.fromProxy && e.Kind != Stopping:
		h.opts.OnEvent(e)
	case !e.fromProxy && (e.Kind == Joined || e.Kind == Printed):
		e.Rank = -1
		h.opts.OnEvent(e)
	}
}

// handleEnd handles the end of a proxy: it returns the outcomes of its ranks, or records that the host
// is lost. The caller holds the lock.
func (h *Hosts) handleEnd(host int, proxy *Outcome) []Outcome {
	ranks := h.proxies.members[host].spec.ranks
	mine := h.outcomes[ranks.first:ranks.end()]
	lost := &HostError{Host: proxy.Host, Text: proxy.Error, State: proxy.State, Joined: proxy.Joined, ExitCode: proxy.ExitCode, Stderr: proxy.Stderr.Tail}
	switch {
	case proxy.Report != nil: // how the proxy exits does not matter then
		outcomes, err := parseOutcomes(proxy.Report, ranks, proxy.Host)
		if err == nil {
			copy(mine, outcomes)
			return mine
		}
		lost.Text = fmt.Sprintf("its outcomes are invalid: %v", err)
	case h.stopping && proxy.State == Stopped && !h.overdue: // by stopProxy
		for i := range mine {
			mine[i].Error = "stopped before its host had joined"
		}
		return mine
	case h.stopping && proxy.State == Stopped:
		lost.Text = "did not stop its ranks in time"
	case proxy.State == Finished:
		lost.Text = "ended without the outcomes of its ranks"
	case proxy.State == Crashed && proxy.Signal != "":
		lost.Text = "ended by " + proxy.Signal
	}
	h.lost = append(h.lost, lost)
	if !h.opts.KeepGoing {
		h.stop(lost)
	}
	return mine
}

// parseOutcomes parses the report of a proxy: the outcomes of its ranks, in order.
func parseOutcomes(report []byte, ranks rankRange, host string) (all []Outcome, err error) {
	if err := json.Unmarshal(report, &all); err != nil {
		return nil, err
	}
	if len(all) != ranks.n {
		return nil, fmt.Errorf("%d outcomes of %d ranks", len(all), ranks.n)
	}
	states := []State{Finished, Failed, Exited, Crashed, Hung, Killed, Stopped}
	for i := range all {
		o := &all[i]
		if o.Rank != ranks.first+i || !slices.Contains(states, o.State) || o.ExitCode < -1 || o.ExitCode > 255 {
			return nil, fmt.Errorf("rank %d: state %q of rank %d with exit code %d", ranks.first+i, o.State, o.Rank, o.ExitCode)
		}
		o.Host, o.Error, o.StateDump = host, truncate(o.Error, maxReason), truncate(o.StateDump, 2*maxDump) // a dump, and what was printed on SIGQUIT
	}
	return all, nil
}

// rankEvent is the body of a kindEvent frame.
type rankEvent struct {
	Kind   EventKind       `json:"kind"`
	Rank   int             `json:"rank"`
	Text   string          `json:"text,omitempty"`
	Sample json.RawMessage `json:"sample,omitempty"`
}

// handleRankEvent posts the event of a rank that its proxy has sent.
func (m *member) handleRankEvent(f control.Frame) error {
	e := m.newEvent(Printed)
	e.fromProxy = true
	switch f.Kind {
	case control.Stdout, control.Stderr:
		e.Rank, e.Text = -1, strings.ToValidUTF8(string(f.Body), "\uFFFD")
		if f.Num < MaxRanks {
			e.Rank = int(f.Num)
		}
		if f.Kind == control.Stderr {
			e.Stream = Stderr
		}
	default:
		var r rankEvent
		if err := json.Unmarshal(f.Body, &r); err != nil {
			return fmt.Errorf("%w: event: %w", control.ErrProtocol, err)
		}
		forwarded := r.Kind != Printed && r.Kind < Ended
		if !forwarded {
			return fmt.Errorf("%w: unexpected event: %v", control.ErrProtocol, r.Kind)
		}
		e.Kind, e.Rank, e.Text, e.Sample = r.Kind, r.Rank, r.Text, r.Sample
	}
	if !m.spec.ranks.contains(e.Rank) && e.Kind != Stopping {
		return fmt.Errorf("%w: event %v of rank %d, which is not on host %s", control.ErrProtocol, e.Kind, e.Rank, m.spec.Host)
	}
	m.g.dispatcher.post(e)
	return nil
}

// setProxyFields sets the fields of a welcome that only proxies get.
func (g *Group) setProxyFields(w *welcome) {
	for _, m := range g.members {
		w.Hosts = append(w.Hosts, m.spec.ranks.n)
	}
	if g.opts.Heartbeat > 0 {
		w.IdleTimeout = idleHangTimeouts * g.opts.HangTimeout
	}
}

// idleHangTimeouts is the time without data after which a proxy gives up its launcher, in HangTimeouts
// of the launcher. It is long, because a launcher may be suspended by Ctrl-Z.
const idleHangTimeouts = 5

// protocol is the protocol with this rank or proxy.
func (m *member) protocol() control.Protocol {
	p := launcherProtocol
	if m.spec.isProxy() {
		p.Them = "the program on host " + m.spec.Host
	}
	return p
}

// explainHello returns the error of a proxy's hello, with what the proxy printed instead.
func (m *member) explainHello(err error) error {
	if m.spec.isProxy() && errors.Is(err, control.ErrProtocol) && !m.greeting.isHello() {
		err = fmt.Errorf("%w: %q was printed before the program on host %s began: nothing that starts it, such as a start-up file of the shell (.bashrc), may print to standard output",
			control.ErrProtocol, m.greeting.line(), m.spec.Host)
	}
	return err
}

// firstBytes records the first bytes that are read from a stream.
type firstBytes struct {
	control.Stream
	bytes []byte
}

// maxFirstBytes is how many bytes are recorded.
const maxFirstBytes = 256

// Read implements control.Stream.
func (f *firstBytes) Read(b []byte) (n int, err error) {
	n, err = f.Stream.Read(b)
	f.bytes = append(f.bytes, b[:min(n, maxFirstBytes-len(f.bytes))]...)
	return n, err
}

// isHello reports whether the stream begins with a Hello frame.
func (f *firstBytes) isHello() bool {
	const kind = 4 // offset in a frame
	return len(f.bytes) > kind && control.Kind(f.bytes[kind]) == control.Hello
}

// line returns the first line of the stream that is not empty, or as much of it as was recorded.
func (f *firstBytes) line() string {
	text := strings.TrimLeft(strings.ToValidUTF8(string(f.bytes), "\uFFFD"), "\r\n")
	line, _, _ := strings.Cut(text, "\n")
	return cmp.Or(strings.TrimRight(line, "\r"), text)
}
