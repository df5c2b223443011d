package mpihost

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// worldRank is a rank of a World.
type worldRank struct {
	w     *World
	rank  int
	proc  *sim.Proc
	tasks []*sim.Proc // running coroutines of Env.Go
	nics  []*rankDevice
	ended bool
	// describe describes what the rank waits for; nil before it has set that up.
	describe func() string
}

// addRanks starts a coroutine for every rank, which calls run and records its error. The hub
// carries the out-of-band messages of the ranks (transport.Control).
func (w *World) addRanks(run func(*transport.Env) error) {
	w.hub = sim.NewHub(w.sim, w.f.Ranks, transport.ErrGone)
	w.out.Ranks = make([]RankOutcome, w.f.Ranks)
	w.ranks = make([]*worldRank, w.f.Ranks)
	for i := range w.ranks {
		r := &worldRank{w: w, rank: i}
		w.ranks[i] = r
		r.proc = w.sim.Go(fmt.Sprintf("rank %d on host%d", i, w.nodes[i]), func(p *sim.Proc) error {
			w.out.Ranks[i].Err = run(r.env(p))
			r.end()
			return nil // other ranks continue
		})
	}
}

// env returns the Env of the rank, with the devices of its host. p is the rank's coroutine. Spend
// lets CPU time pass for the coroutine that runs.
func (r *worldRank) env(p *sim.Proc) *transport.Env {
	w, h := r.w, &r.w.hosts[r.w.nodes[r.rank]]
	e := &transport.Env{
		Rank: r.rank, Size: w.f.Ranks, Nodes: w.nodes, Seed: w.f.Seed, Proc: p,
		Control: &control{w.hub.Endpoint(r.rank), w.abort}, Shared: h.shared, Go: r.startTask,
		OnDump: func(describe func() string) { r.describe = describe },
		Costs:  w.f.Costs, Spend: func(what verbs.Work, n int, d time.Duration) {
			if p := w.sim.Current(); p != nil { // the rank or one of its tasks
				start := w.Now()
				if what == verbs.WorkCopy {
					h.bus.copy(p, n, d)
				} else {
					p.Compute(d)
				}
				if w.onWork != nil {
					w.onWork(r.rank, what, n, start)
				}
			}
		},
	}
	for rail, d := range h.devices {
		nic := &rankDevice{Context: d}
		r.nics = append(r.nics, nic)
		e.NICs = append(e.NICs, transport.NIC{Device: nic, Addr: h.ports[rail].Addrs()[0]})
	}
	return e
}

// startTask implements Env.Go: it runs f in a coroutine that ends with the rank. It does nothing if
// the rank has ended.
func (r *worldRank) startTask(name string, f func(verbs.Proc)) {
	if r.ended {
		return
	}
	var task *sim.Proc
	task = r.w.sim.Go(fmt.Sprintf("rank %d: %s", r.rank, name), func(p *sim.Proc) error {
		f(p)
		if i := slices.Index(r.tasks, task); i >= 0 {
			r.tasks = slices.Delete(r.tasks, i, i+1)
		}
		return nil
	})
	r.tasks = append(r.tasks, task)
}

// end records that a rank has returned or was killed, and schedules the release of its
// resources and tasks, as the end of a process would.
func (r *worldRank) end() {
	if r.ended {
		return
	}
	r.ended = true
	r.w.out.Ranks[r.rank].Ended = time.Duration(r.w.sim.Now())
	r.w.hub.End(r.rank)
	// In a separate event: the caller may be one of the coroutines to end, and Close
	// in a coroutine takes virtual time.
	r.w.sim.AtFunc(r.w.sim.Now(), func() { r.w.releaseErr = errors.Join(r.w.releaseErr, r.release()) })
}

// release ends the coroutines of the rank, and closes its queue pairs and listeners.
func (r *worldRank) release() error {
	err := r.proc.Kill() // no effect if it has returned
	for _, t := range r.tasks {
		err = errors.Join(err, t.Kill())
	}
	r.tasks = nil
	for _, nic := range r.nics {
		nic.release()
	}
	return err
}

// Kill ends a rank at once, as SIGKILL would. Other ranks learn of it from Control
// and from failing requests. It takes effect at the current virtual time, when the
// caller blocks. A rank that has ended is not affected.
func (w *World) Kill(rank int) {
	w.sim.AtFunc(w.sim.Now(), func() { w.kill(w.ranks[rank]) })
}

// kill ends a rank that has not ended. It must not be called in a coroutine of the rank.
func (w *World) kill(r *worldRank) {
	if r.ended {
		return
	}
	w.out.Ranks[r.rank].Killed = true
	r.end()
	w.releaseErr = errors.Join(w.releaseErr, r.release()) // now: end only schedules it
}

// abort ends all ranks. The rank that aborts ends first, because it may hold locks that deferred
// calls of its tasks need. Only the first abort has an effect.
func (w *World) abort(rank, code int, why string) {
	if w.out.Aborted != nil {
		return
	}
	w.out.Aborted = &AbortError{Rank: rank, Code: code, Reason: why}
	w.sim.AtFunc(w.sim.Now(), func() {
		w.kill(w.ranks[rank])
		for _, r := range w.ranks {
			w.kill(r)
		}
	})
}

// control is the transport.Control of a rank in a simulation.
type control struct {
	*sim.Endpoint
	abort func(rank, code int, why string)
}

var _ transport.Control = (*control)(nil)

// Abort implements transport.Control: it ends all ranks. It does not return in a coroutine of
// the simulation, which blocks until it is ended. The caller must not hold a lock that deferred
// calls of other ranks need.
func (c *control) Abort(code int, why string) {
	c.abort(c.Rank(), code, why)
	if p := c.World().Current(); p != nil {
		var neverSet sim.Signal
		for {
			p.Wait(&neverSet, sim.WaitReason("the end of all ranks"), verbs.Forever)
		}
	}
}

// segments is the shared memory of a simulated host.
type segments map[string][]byte

// Segment implements transport.SharedMemory: it returns the memory with a name, which the first
// call creates. All calls must give the same size.
func (s segments) Segment(name string, size int) ([]byte, error) {
	if size < 1 {
		return nil, fmt.Errorf("segment %q: %w: %d bytes", name, verbs.ErrInvalid, size)
	}
	mem, exists := s[name]
	if !exists {
		mem = aligned(size)
		s[name] = mem
	}
	if len(mem) != size {
		return nil, fmt.Errorf("segment %q: %w: %d bytes requested, and another rank created it with %d", name, verbs.ErrInvalid, size, len(mem))
	}
	return mem, nil
}

// aligned returns memory that starts at a cache line, as mapped memory does, for
// atomics on its first word.
func aligned(size int) []byte {
	const line = 64
	b := make([]byte, size+line)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (line - 1)
	return b[skip : skip+size : skip+size]
}

// rankDevice is a host's device as one of its ranks uses it. It tracks queue pairs and listeners,
// to close them when the rank ends, like a process exit.
type rankDevice struct {
	verbs.Context
	qps       []verbs.QP
	listeners []verbs.Listener
}

// CreateQP implements verbs.Context. It tracks the queue pair, so that release closes it.
func (d *rankDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.Context.CreateQP(init)
	if err == nil {
		d.qps = append(d.qps, qp)
	}
	return qp, err
}

// CM implements verbs.Context. The returned CM tracks its listeners, so that release closes them.
func (d *rankDevice) CM() (verbs.CM, error) {
	cm, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return &rankCM{cm, d}, nil
}

// Close implements verbs.Context. It closes the rank's objects, not the host's device.
func (d *rankDevice) Close() error {
	d.release()
	return nil
}

// release closes the open queue pairs and listeners. Closing one twice is harmless.
func (d *rankDevice) release() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
	for _, qp := range d.qps {
		_ = qp.Close()
	}
	d.qps, d.listeners = nil, nil
}

type rankCM struct {
	verbs.CM
	device *rankDevice
}

// Listen implements verbs.CM. It tracks the listener, so that rankDevice.release closes it.
func (c *rankCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := c.CM.Listen(addr, space, backlog)
	if err == nil {
		c.device.listeners = append(c.device.listeners, l)
	}
	return l, err
}
