package carrier

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// program is what the ranks of a machine do. An act is a letter and a peer: s and S send a short and a
// long message, w and v write to the peer's memory, with and without a notice, r reads from it, and R
// waits for a message of the peer.
type program struct {
	config Config
	acts   []string // by rank
	faults int      // of datagrams, and acknowledgements that are lost when the peer closes
	idle   int      // how often all connections become idle
	rails  int      // NICs of each rank; 0 means 1
	breaks int      // connections that break; with one rail the peer is lost then
	mayDie bool     // one rank dies at any time
}

// machine is carriers that execute a program on modelled NICs. A timeout that expires while something
// is under way is a fault.
type machine struct {
	program
	*modelFabric
	now      time.Duration
	ranks    []*exploredRank
	dead     int  // the rank that has died; -1 if none has
	gone     bool // the launcher knows of it
	probes   int  // keepalive intervals that may still pass while nothing has failed
	failure  error
	progress bool // of the last step
	digest   *digest
}

// exploredRank is a rank of a machine, and the Upper of its carrier.
type exploredRank struct {
	c          *Carrier
	m          *machine
	rank       int
	nics       []*modelNIC
	next       int  // offset of the next act
	runnable   bool // it calls Progress before it waits
	withPeer   []traffic
	operations []*operation
	delivered  bool   // of all that it has sent
	memory     []byte // that peers read and write
	exposed    *memory.Region
	regions    []wire.Region // of transfers
}

// traffic is what a rank and a peer have done.
type traffic struct {
	sent, received, waited, notices, transfers int
	lost                                       bool
}

// operation is the owner of a send or of a transfer.
type operation struct {
	act  byte
	peer int
	into []byte // of a read
	done bool
}

const (
	shortMessage = 4
	longMessage  = 250
	transferLen  = 8
	maxTransfers = 4 // of a rank to a peer
)

func (p program) machine(d *digest) *machine {
	m := &machine{program: p, now: time.Second, dead: -1, probes: 1, digest: d}
	size, rails := len(p.acts), max(p.rails, 1)
	m.modelFabric = newModelFabric(size*rails, p.faults, p.breaks)
	for rank := range size {
		r := &exploredRank{m: m, rank: rank, nics: m.nics[rank*rails:][:rails], withPeer: make([]traffic, size), memory: bytes.Repeat([]byte{readPattern(rank)}, size*maxTransfers*transferLen)}
		m.ranks = append(m.ranks, r)
		env := &transport.Env{Rank: rank, Size: size, Proc: clockOf{m}, Control: control{m, rank}}
		for _, nic := range r.nics {
			env.NICs = append(env.NICs, transport.NIC{Device: nic, Addr: nic.gid().Addr()})
		}
		var err error
		if r.c, err = Open(env, p.config, r); err != nil {
			panic(err)
		}
		if r.exposed, err = r.c.mem.Register(r.memory); err != nil {
			panic(err)
		}
	}
	return m
}

// readPattern is the byte that fills the memory of a rank.
func readPattern(rank int) byte { return byte(rank + 1) }

// clockOf is the verbs.Proc of a machine.
type clockOf struct{ m *machine }

func (c clockOf) Now() time.Duration  { return c.m.now }
func (clockOf) Sleep(time.Duration)   {}
func (clockOf) Compute(time.Duration) {}

// control is the transport.Control of a rank, which exchanges endpoints only.
type control struct {
	m    *machine
	rank int
}

func (control) Send(int, []byte) error      { return nil }
func (control) Barrier(time.Duration) error { return nil }
func (control) Abort(int, string)           {}
func (c control) Gone(rank int) bool        { return c.m.gone && rank == c.m.dead }

func (c control) Recv(from int, _ time.Duration) ([]byte, error) {
	all := c.m.endpoints()
	if c.rank > 0 {
		return all, nil
	}
	n := len(all) / len(c.m.acts)
	return all[from*n:][:n], nil
}

// fail notes the first failure.
func (m *machine) fail(format string, args ...any) {
	if m.failure == nil {
		m.failure = fmt.Errorf(format, args...)
	}
}

// messageData is the data of a message of a rank to a peer.
func messageData(from, to, number, size int) []byte {
	b := bytes.Repeat([]byte{byte(16*from + to)}, size)
	b[0] = byte(number)
	return b
}

// messages returns the sizes of the messages of a rank to a peer.
func (p program) messages(from, to int) (sizes []int) {
	acts := p.acts[from]
	for i := 0; i < len(acts); i += 2 {
		switch {
		case int(acts[i+1]-'0') != to:
		case acts[i] == 's':
			sizes = append(sizes, shortMessage)
		case acts[i] == 'S':
			sizes = append(sizes, longMessage)
		}
	}
	return sizes
}

// count returns how often an act with a peer occurs in the acts of a rank.
func (p program) count(rank int, act byte, peer int) (n int) {
	acts := p.acts[rank]
	for i := 0; i < len(acts); i += 2 {
		if acts[i] == act && int(acts[i+1]-'0') == peer {
			n++
		}
	}
	return n
}

// Arrived implements Upper: messages arrive in order, once, and with their data.
func (r *exploredRank) Arrived(peer int, h *wire.Header, data []byte) error {
	r.m.progress = true
	t := &r.withPeer[peer]
	if h.Kind == wire.Done { // a notice
		t.notices++
		if got := r.memory[int(h.Send):][:transferLen]; !bytes.Equal(got, written(peer, r.rank)) {
			r.m.fail("rank %d: the memory is % x at the notice of rank %d", r.rank, got, peer)
		}
		return nil
	}
	sizes := r.m.messages(peer, r.rank)
	if t.received >= len(sizes) || !bytes.Equal(data, messageData(peer, r.rank, t.received, sizes[t.received])) {
		r.m.fail("rank %d: message %d of rank %d is % x", r.rank, t.received, peer, data)
	}
	t.received++
	return nil
}

// written is what a rank writes to the memory of a peer.
func written(from, to int) []byte {
	return bytes.Repeat([]byte{byte(0x80 + 16*from + to)}, transferLen)
}

// Finished implements Upper.
func (r *exploredRank) Finished(owner any, _ Op, err error) {
	r.m.progress = true
	o := owner.(*operation)
	switch {
	case o.done:
		r.m.fail("rank %d: %c%d has finished twice", r.rank, o.act, o.peer)
	case err != nil && !r.m.mayLose(o.peer):
		r.m.fail("rank %d: %c%d: %w", r.rank, o.act, o.peer, err)
	case err == nil && o.act == 'r' && !bytes.Equal(o.into, bytes.Repeat([]byte{readPattern(o.peer)}, transferLen)):
		r.m.fail("rank %d: has read % x from rank %d", r.rank, o.into, o.peer)
	case err == nil && o.act == 'v': // the data is in the memory of the peer
		peer := r.m.ranks[o.peer]
		if o.peer != r.m.dead && !bytes.Contains(peer.memory, written(r.rank, o.peer)) {
			r.m.fail("rank %d: the write to rank %d has finished before the data is there", r.rank, o.peer)
		}
	}
	o.done = true
}

// Lost implements Upper.
func (r *exploredRank) Lost(peer int, cause error) {
	r.m.progress = true
	if r.withPeer[peer].lost || !r.m.mayLose(peer) {
		r.m.fail("rank %d has lost rank %d: %w", r.rank, peer, cause)
	}
	r.withPeer[peer].lost = true
}

// mayLose reports whether a peer may be lost: it has died, or the only connection to it has broken.
func (m *machine) mayLose(peer int) bool {
	return peer == m.dead || m.rails < 2 && m.dead < 0 && m.hasFailed()
}

// EachAwaitedPeer implements Upper.
func (r *exploredRank) EachAwaitedPeer(visit func(int)) {
	for peer := range r.withPeer {
		if r.awaits(peer) {
			visit(peer)
		}
	}
}

// awaits reports whether a rank waits for anything of a peer.
func (r *exploredRank) awaits(peer int) bool {
	t := &r.withPeer[peer]
	if peer == r.rank || t.lost {
		return false
	}
	pending := func(o *operation) bool { return o.peer == peer && !o.done }
	return t.received < len(r.m.messages(peer, r.rank)) || t.notices < r.m.count(peer, 'w', r.rank) || slices.ContainsFunc(r.operations, pending)
}

// FlushNeeded implements Upper.
func (r *exploredRank) FlushNeeded() { r.runnable = true }

// The kinds of steps, besides those of the NICs and of the network. A is the rank.
const (
	actStep       = "act"
	progressStep  = "progress"
	timeStep      = "time"
	earlyTimeStep = "early-time"
	idleStep      = "idle"
	keepaliveStep = "keepalive"
	dieStep       = "die"
	goneStep      = "gone"
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for i, r := range m.ranks {
		if i != m.dead && r.canAct() {
			can = append(can, explore.Step{Kind: actStep, A: int32(i)})
		}
	}
	acts := len(can)
	for i, r := range m.ranks {
		if i != m.dead && r.canProgress() {
			can = append(can, explore.Step{Kind: progressStep, A: int32(i)})
		}
	}
	can = m.enabled(m.Network.Enabled(can))
	quiet := len(can) == acts
	can = m.times(can, quiet)
	if m.mayDie && m.dead < 0 {
		for i := range m.ranks {
			can = append(can, explore.Step{Kind: dieStep, A: int32(i)})
		}
	}
	if m.dead >= 0 && !m.gone {
		can = append(can, explore.Step{Kind: goneStep})
	}
	return can
}

// times appends the steps in which time passes. quiet says that nothing is under way.
func (m *machine) times(can []explore.Step, quiet bool) []explore.Step {
	switch at, isAck := m.deadline(); {
	case at <= m.now: // none runs, or a rank has not handled it yet
	case isAck || quiet:
		can = append(can, explore.Step{Kind: timeStep})
	case m.Faults > 0:
		can = append(can, explore.Step{Kind: earlyTimeStep})
	}
	if m.idle > 0 {
		can = append(can, explore.Step{Kind: idleStep})
	}
	if quiet && m.anyAwaits() && (m.probes > 0 || m.hasFailed()) {
		can = append(can, explore.Step{Kind: keepaliveStep})
	}
	return can
}

// hasFailed reports whether a rank has died, or a connection has broken.
func (m *machine) hasFailed() bool { return m.dead >= 0 || m.modelFabric.breaks < m.program.breaks }

// anyAwaits reports whether a rank waits for a peer and, if one has died, for that one.
func (m *machine) anyAwaits() bool {
	for i, r := range m.ranks {
		for peer := range r.withPeer {
			if i != m.dead && (m.dead < 0 || peer == m.dead) && r.awaits(peer) {
				return true
			}
		}
	}
	return false
}

// deadline returns the next timer of a rank, 0 if none runs, and whether it is that of an acknowledgement.
func (m *machine) deadline() (at time.Duration, isAck bool) {
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		for _, p := range r.c.lists.timed.peers {
			if t := p.acks.expiry; t != 0 && (at == 0 || t <= at) {
				at, isAck = t, true
			}
			if t := p.out.expiry; t != 0 && (at == 0 || t < at) {
				at, isAck = t, false
			}
		}
	}
	return at, isAck
}

// canAct reports whether a rank can start its next act.
func (r *exploredRank) canAct() bool {
	acts := r.m.acts[r.rank]
	if r.next == len(acts) {
		return false
	}
	t := &r.withPeer[acts[r.next+1]-'0']
	return acts[r.next] != 'R' || t.received > t.waited || t.lost
}

// canProgress reports whether there is anything to do for Progress.
func (r *exploredRank) canProgress() bool {
	at, ok := r.c.nextTimer()
	hasCompletions := func(n *modelNIC) bool { return len(n.completions) > 0 }
	if r.runnable || slices.ContainsFunc(r.nics, hasCompletions) || ok && at <= r.m.now {
		return true
	}
	for peer := range r.withPeer {
		if r.c.HasPacket(peer) {
			return true
		}
	}
	return false
}

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	m.progress = s.Kind != progressStep && s.Kind != explore.Deliver && s.Kind != executeStep && s.Kind != acknowledgeStep && s.Kind != timeStep
	switch s.Kind {
	case actStep:
		m.ranks[s.A].act()
	case progressStep:
		m.ranks[s.A].doProgress()
	case timeStep, earlyTimeStep:
		if s.Kind == earlyTimeStep {
			m.Faults--
		}
		at, _ := m.deadline()
		m.now = max(m.now, at)
	case idleStep:
		m.idle--
		m.pass(m.config.IdleTimeout)
	case keepaliveStep:
		if !m.hasFailed() {
			m.probes--
		}
		m.pass(m.config.KeepaliveIdle)
	case dieStep:
		m.dead = int(s.A)
		for _, nic := range m.ranks[m.dead].nics {
			nic.kill()
		}
	case goneStep:
		m.gone = true
	case executeStep, acknowledgeStep, retryStep, loseAckStep, breakStep:
		m.take(s)
	default:
		if p := m.Network.Take(s); p != nil {
			m.arrived(p)
		}
	}
	return m.failure
}

// pass lets time pass, after which all ranks call Progress.
func (m *machine) pass(d time.Duration) {
	m.now += d
	for _, r := range m.ranks {
		r.runnable = true
	}
}

// act starts the next act of the rank.
func (r *exploredRank) act() {
	acts := r.m.acts[r.rank]
	act, peer := acts[r.next], int(acts[r.next+1]-'0')
	r.next += 2
	r.runnable = true
	t := &r.withPeer[peer]
	o := &operation{act: act, peer: peer}
	switch act {
	case 'R':
		t.waited++
		return
	case 's', 'S':
		sizes := r.m.messages(r.rank, peer)
		r.operations = append(r.operations, o)
		data := messageData(r.rank, peer, t.sent, sizes[t.sent])
		t.sent++
		r.c.Send(peer, &wire.Header{Kind: wire.Eager, Tag: 1, Size: uint64(len(data))}, data, o)
		clear(data) // the carrier has copied it
	default:
		r.operations = append(r.operations, o)
		r.transfer(o)
		t.transfers++
	}
}

// transfer starts a transfer from or to the memory of a peer.
func (r *exploredRank) transfer(o *operation) {
	peer := r.m.ranks[o.peer]
	at := (r.rank*maxTransfers + r.withPeer[o.peer].transfers) * transferLen
	x := wire.Transfer{N: transferLen, Remote: peer.exposed.Memory()}
	x.Remote.Addr += uint64(at)
	o.into = make([]byte, transferLen)
	if o.act != 'r' {
		copy(o.into, written(r.rank, o.peer))
	}
	local, err := r.c.mem.Register(o.into)
	if err != nil {
		r.m.fail("rank %d: %w", r.rank, err)
		return
	}
	r.regions = append(r.regions, local)
	x.Local = local
	switch o.act {
	case 'r':
		r.c.Read(o.peer, x, o)
	case 'w':
		x.Then = &wire.Header{Kind: wire.Done, Send: uint32(at)}
		r.c.Write(o.peer, x, o)
	default:
		r.c.Write(o.peer, x, o)
	}
}

// doProgress calls Progress. A rank that has done and received everything then waits for its delivery.
func (r *exploredRank) doProgress() {
	r.runnable = false
	r.runnable = r.c.Progress() || r.runnable
	if r.next == len(r.m.acts[r.rank]) && !slices.ContainsFunc(r.m.ranks, func(p *exploredRank) bool { return r.awaits(p.rank) }) {
		r.delivered = r.c.AllDelivered()
	}
}

// Progressed implements explore.Progresser.
func (m *machine) Progressed() bool { return m.progress }

// Check implements explore.Machine: no shared receive is lost.
func (m *machine) Check() error {
	for i, r := range m.ranks {
		for n, rail := range r.c.rails {
			if srq := rail.srq; srq != nil && i != m.dead {
				completed := 0
				for _, wc := range r.nics[n].completions {
					if wc.Opcode == verbs.WCOpRecv && wc.QPN > 1 {
						completed++
					}
				}
				if posted := len(srq.queue.(*modelSRQ).posted); srq.posted != posted+completed+srq.recv.Staged() {
					return fmt.Errorf("rank %d: of %d shared receives %d are posted, %d have completed, and %d are to be posted", i, srq.posted, posted, completed, srq.recv.Staged())
				}
			}
		}
	}
	return nil
}

// Finish implements explore.Finisher: everything has arrived, both ends agree on their connections, and
// nothing remains when the carriers are closed.
func (m *machine) Finish() error {
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		for peer := range m.ranks {
			if r.awaits(peer) {
				return fmt.Errorf("%w: rank %d waits for rank %d: %+v", explore.ErrDeadlock, i, peer, r.withPeer[peer])
			}
		}
		if r.next < len(m.acts[i]) || !r.delivered && !m.anyMayBeLost() { // what is sent to a dead rank stays
			return fmt.Errorf("%w: rank %d has started %q of %q; all delivered: %v", explore.ErrDeadlock, i, m.acts[i][:r.next], m.acts[i], r.delivered)
		}
		if err := r.checkConnections(); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	for i, r := range m.ranks {
		if i == m.dead {
			continue
		}
		if err := r.close(); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// anyMayBeLost reports whether a rank may be lost.
func (m *machine) anyMayBeLost() bool { return m.mayLose(m.dead) }

// checkConnections checks that each connection has its other end, and all credits.
func (r *exploredRank) checkConnections() error {
	count := 0
	for _, p := range r.c.peers {
		if p == nil || p.lost != nil || r.m.mayLose(p.rank) {
			continue
		}
		for k := range p.eachConn {
			count++
			if err := r.checkConnection(k); err != nil {
				return fmt.Errorf("the connection to rank %d is %v: %w", p.rank, k.state, err)
			}
		}
	}
	n := 0
	for _, rail := range r.c.rails {
		n += len(rail.conns)
	}
	if !r.m.anyMayBeLost() && r.m.program.breaks == 0 && (n != count || r.c.stats.Connections != count) {
		return fmt.Errorf("there are %d connections, of which %d remain and %d are counted", count, n, r.c.stats.Connections)
	}
	return nil
}

func (r *exploredRank) checkConnection(k *conn) error {
	if k.state == failed {
		if r.m.modelFabric.breaks == r.m.program.breaks {
			return errors.New("none has broken")
		}
		return nil
	}
	qp := k.QP.(*modelQP)
	other := r.m.ranks[k.peer.rank].c.peer(r.rank).conns[k.rail.Num]
	switch {
	case qp.broken:
		return nil
	case k.state != open:
		return errors.New("it must be open")
	case qp.peer() == nil || other == nil || other.QP.(*modelQP) != qp.peer():
		return errors.New("it has no other end")
	case k.credits.enabled && k.credits.available+other.credits.toReturn != r.m.config.Receives+reservedCredits:
		return fmt.Errorf("it has %d credits, and the peer returns %d more", k.credits.available, other.credits.toReturn)
	}
	return nil
}

// close closes the carrier, and checks that all objects are closed and all buffers free.
func (r *exploredRank) close() error {
	for _, region := range r.regions {
		r.c.Release(region)
	}
	r.c.release(r.exposed)
	err := r.c.Close()
	for _, nic := range r.nics {
		if err == nil && (nic.objects != 0 || len(nic.memory) != 0) {
			err = fmt.Errorf("%d objects and %d memory regions of the NIC are not closed", nic.objects, len(nic.memory))
		}
	}
	if r.m.anyMayBeLost() {
		return err // packets to a peer that is dead, but not lost, are not acknowledged
	}
	return cmp.Or(err, r.checkBuffers())
}

// checkBuffers checks that no packet keeps a buffer: those of the first chunk of the pool are free.
func (r *exploredRank) checkBuffers() error {
	before := r.c.mem.Usage.Now[memory.SendBuffers]
	for n := before / r.c.cfg.PacketSize; n > 0; n-- {
		_, err := r.c.mem.SendBuffer(1)
		if err != nil || r.c.mem.Usage.Now[memory.SendBuffers] > before {
			return errors.Join(err, fmt.Errorf("%d send buffers or more are not free", n))
		}
	}
	return nil
}
