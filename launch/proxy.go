package launch

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/control"
)

// Proxy starts the ranks of one host for a launcher on another host, and connects them with the ranks
// of other hosts. The control channel of a proxy is its standard input and output; when it ends, the
// proxy exits, and its ranks are killed.
type Proxy struct {
	conn  *Conn       // its ranks are the indexes of hosts
	hosts []rankRange // the ranks of each host
	group *Group
}

// rankRange are the n ranks from first on.
type rankRange struct{ first, n int }

func (r rankRange) end() int { return r.first + r.n }

func (r rankRange) contains(rank int) bool { return rank >= r.first && rank < r.end() }

// hasValidHosts reports whether the numbers of ranks, if there are any, are those of Size hosts.
func (w *welcome) hasValidHosts() bool {
	if w.Hosts == nil {
		return true
	}
	ranks := 0
	for _, n := range w.Hosts {
		if n < 1 || n > MaxRanks {
			return false
		}
		ranks += n
	}
	return len(w.Hosts) == w.Size && ranks <= MaxRanks
}

// JoinProxy connects this process to the launcher that started it by StartHosts, over standard input
// and output. From then on, the process reads no input, and prints to standard error. If the launcher
// or the connection to it ends, the process exits with ExitDisconnected.
func JoinProxy() (*Proxy, error) {
	channel, err := takeStdio()
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	conn, err := joinOn(channel, exitOnDisconnect)
	if err != nil {
		return nil, err
	}
	p := &Proxy{conn: conn}
	first := 0
	for _, n := range conn.welcome.Hosts {
		p.hosts = append(p.hosts, rankRange{first, n})
		first += n
	}
	if p.hosts == nil {
		return nil, errors.Join(ErrNotLaunched, conn.Close(ErrNotLaunched))
	}
	return p, nil
}

// Job returns HostSpec.Job of this host.
func (p *Proxy) Job() []byte { return p.conn.Job() }

// Host returns the name of this host.
func (p *Proxy) Host() string { return p.conn.Host() }

// Ranks returns the first rank of this host, and how many there are.
func (p *Proxy) Ranks() (first, n int) { return p.ranks().first, p.ranks().n }

func (p *Proxy) ranks() rankRange { return p.hosts[p.conn.Rank()] }

// OnCommand sets the function that handles commands of the launcher, as Conn.OnCommand does.
func (p *Proxy) OnCommand(f func(string) error) { p.conn.OnCommand(f) }

// Close informs the launcher that this host has failed, if Run was not called. The process must then
// exit.
func (p *Proxy) Close(reason error) error { return p.conn.Close(reason) }

// Run starts the ranks of this host, waits until they have ended, and sends their outcomes to the
// launcher, or the error. The launcher also gets all events, instead of opts.OnEvent. The ranks stop
// as those of a Group do. Run returns an error that could not be sent.
func (p *Proxy) Run(ctx context.Context, specs []Spec, opts Options) error {
	opts.OnEvent = p.forwardEvent
	last := p.hosts[len(p.hosts)-1]
	p.group = &Group{first: p.ranks().first, size: last.end(), proxy: p}
	_, err := start(ctx, specs, opts, p.group)
	if err != nil {
		return p.conn.Close(err)
	}
	for host := range p.hosts {
		if host != p.conn.Rank() {
			go p.receive(host)
		}
	}
	go p.handleStop()
	outcomes, _ := p.group.Wait() // the outcomes have the errors
	for i := range outcomes {
		outcomes[i].Stdout.Tail, outcomes[i].Stderr.Tail = "", "" // the launcher has got the lines
	}
	report, err := json.Marshal(outcomes)
	if err == nil {
		err = p.conn.Report(report)
	}
	return p.conn.Close(err)
}

// handleStop stops the ranks when the launcher requests it.
func (p *Proxy) handleStop() {
	select {
	case timedOut := <-p.conn.stops:
		reason := errors.New("stopped by the launcher")
		if timedOut {
			reason = fmt.Errorf("%w: %w", reason, context.DeadlineExceeded)
		}
		p.group.Stop(reason)
	case <-p.group.Done():
	}
}

// forwardEvent sends an event of a rank to the launcher. It ignores errors: if the connection has
// ended, so has this process.
func (p *Proxy) forwardEvent(e Event) {
	const maxText = 8 << 10
	switch {
	case e.Kind == Printed:
		f := control.Frame{Kind: control.Stdout, Num: uint64(e.Rank), Body: []byte(e.Text)}
		if e.Stream == Stderr {
			f.Kind = control.Stderr
		}
		_ = p.conn.put("event", f)
	case e.Kind != Ended: // the outcomes are sent together
		body, err := json.Marshal(rankEvent{e.Kind, e.Rank, truncate(e.Text, maxText), e.Sample})
		if err == nil {
			_ = p.conn.put("event", control.Frame{Kind: kindEvent, Body: body})
		}
	}
}

// A message between proxies has an envelope: the sending rank, and the receiving rank or allRanks, each
// 4 bytes. A message to allRanks has no body, and says that the sending rank has ended.
const (
	envelopeLen = 8
	allRanks    = 1<<32 - 1
)

// envelope returns a message of a rank with its envelope.
func envelope(from, to int, body []byte) []byte {
	b := make([]byte, 0, envelopeLen+len(body))
	b = binary.BigEndian.AppendUint32(b, uint32(from))
	b = binary.BigEndian.AppendUint32(b, uint32(to))
	return append(b, body...)
}

// send sends a message of a rank of this host to one of another host. It blocks while the queue to the
// launcher is full. The message is lost if the other host is.
func (p *Proxy) send(from, to int, body []byte) {
	for host, ranks := range p.hosts {
		if ranks.contains(to) {
			_ = p.conn.Send(host, envelope(from, to, body))
		}
	}
}

// announceEnd informs the ranks of other hosts that a rank of this host has ended.
func (p *Proxy) announceEnd(rank int) {
	for host := range p.hosts {
		if host != p.conn.Rank() {
			_ = p.conn.Send(host, envelope(rank, allRanks, nil))
		}
	}
}

// enterBarrier waits until the ranks of all hosts have entered a barrier, and releases those of this one.
func (p *Proxy) enterBarrier() {
	if p.conn.Barrier(-1) != nil {
		return // this process ends
	}
	g := p.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.barrierWaits = false
	g.completeBarrier()
}

// receive delivers the messages of another host's ranks until that host has ended.
func (p *Proxy) receive(host int) {
	for {
		msg, err := p.conn.Recv(host, -1)
		switch {
		case errors.Is(err, ErrEnded):
			for i := range p.hosts[host].n {
				p.group.handleEndOf(p.hosts[host].first + i)
			}
			return
		case err != nil: // this process ends
			return
		}
		if err := p.deliver(host, msg); err != nil {
			_ = p.conn.Close(err) // this host counts as lost
			p.group.Stop(err)
			return
		}
	}
}

// deliver delivers a message of another host. It blocks while the queue of the receiving rank is full.
func (p *Proxy) deliver(host int, msg []byte) error {
	if len(msg) < envelopeLen {
		return fmt.Errorf("%w: a message of %d bytes from host %d", control.ErrProtocol, len(msg), host)
	}
	from, to := int(binary.BigEndian.Uint32(msg)), int(binary.BigEndian.Uint32(msg[4:]))
	if !p.hosts[host].contains(from) || (to != allRanks && !p.ranks().contains(to)) {
		return fmt.Errorf("%w: a message from rank %d to rank %d from host %d", control.ErrProtocol, from, to, host)
	}
	if to == allRanks {
		p.group.handleEndOf(from)
		return nil
	}
	p.group.members[to-p.group.first].deliver(from, msg[envelopeLen:])
	return nil
}

// handleEndOf informs the ranks of this host that a rank of another host has ended.
func (g *Group) handleEndOf(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.announceEnd(rank)
}
