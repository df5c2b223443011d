package carrier_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// rank is a rank with the point-to-point engine only.
type rank struct {
	*transport.Env
	*carrier.Carrier
	engine      *p2p.Engine
	lost        map[int]error
	maxWait     time.Duration // longest wait
	arrived     int           // messages
	flushNeeded int           // calls of FlushNeeded
	onLost      func(peer int)
}

func (r *rank) Arrived(peer int, h *wire.Header, data []byte) error {
	r.arrived++
	return r.engine.Arrived(peer, h, data)
}

func (r *rank) Lost(peer int, cause error) {
	r.lost[peer] = cause
	r.engine.Lost(peer, cause)
	if r.onLost != nil {
		r.onLost(peer)
	}
}
func (r *rank) FlushNeeded() { r.flushNeeded++ }
func (r *rank) EachAwaitedPeer(visit func(int)) {
	for i := range r.Size {
		if i != r.Rank {
			visit(i)
		}
	}
	r.engine.EachAwaitedPeer(visit, func(uint32, int) {}) // visits a peer for each pending request
}

func (r *rank) Finished(owner any, op carrier.Op, err error) {
	if a, ok := owner.(*atomicOwner); ok {
		a.done++
		a.err = errors.Join(a.err, err)
		return
	}
	q := owner.(*p2p.Request)
	switch op {
	case carrier.OpSend:
		r.engine.SendDone(q, err)
	case carrier.OpRead:
		r.engine.ReadDone(q, err)
	case carrier.OpWrite:
		r.engine.WriteDone(q, err)
	}
}

// wait calls Progress until done returns true.
func (r *rank) wait(what string, done func() bool) error {
	for began := r.Now(); !done(); {
		if !r.Carrier.Progress() {
			r.Wait(r.maxWait)
		}
		if r.Now()-began > time.Minute {
			return fmt.Errorf("rank %d: timeout waiting for %s", r.Rank, what)
		}
	}
	return nil
}

func (r *rank) waitAll(qs ...*p2p.Request) error {
	isPending := func(q *p2p.Request) bool { return !q.Done() }
	err := r.wait("requests", func() bool { return !slices.ContainsFunc(qs, isPending) })
	for _, q := range qs {
		err = cmp.Or(err, q.Err)
	}
	return err
}

// irecv and isend start a receive and a standard send.
func (r *rank) irecv(peer, tag int, buf []byte) *p2p.Request {
	q := &p2p.Request{Peer: peer, Tag: int32(tag), Buf: buf}
	r.engine.Irecv(q)
	return q
}

func (r *rank) isend(peer, tag int, buf []byte) *p2p.Request {
	q := &p2p.Request{Peer: peer, Tag: int32(tag), Buf: buf}
	r.engine.Isend(q)
	return q
}

// leave waits until all ranks have received everything, and closes the carrier.
func (r *rank) leave() error {
	if err := r.wait("delivery", r.AllDelivered); err != nil {
		return err
	}
	if err := r.barrier(); err != nil {
		return err
	}
	return r.Carrier.Close()
}

// barrier is a barrier that calls Progress while it waits.
func (r *rank) barrier() error {
	passed := false
	r.Env.Go("barrier", func(verbs.Proc) { passed = r.Control.Barrier(time.Minute) == nil })
	return r.wait("the other ranks", func() bool { return passed })
}

type setting struct {
	provider string
	design   carrier.Design
	protocol p2p.Protocol
	loss     uint32
}

func (s setting) String() string {
	return fmt.Sprintf("%s/%s/%s/loss=%d", s.provider, s.design, s.protocol, s.loss)
}

// runRanks runs a program on every rank.
func runRanks(t *testing.T, ranks int, s setting, cfg carrier.Config, program func(*rank) error) mpihost.Outcome {
	t.Helper()
	return must.Get(runOnFabric(mpihost.Fabric{Ranks: ranks}, s, cfg, program))(t)
}

// runOnFabric runs a program on every rank of a fabric.
func runOnFabric(f mpihost.Fabric, s setting, cfg carrier.Config, program func(*rank) error) (mpihost.Outcome, error) {
	f.Provider, f.Seed, f.Limit = s.provider, 1, time.Hour
	if s.loss > 0 {
		f.Impair = []impair.Spec{{LossPPM: s.loss}}
	}
	cfg.Design = s.design
	return mpihost.InWorld(f, func(e *transport.Env) error {
		r := &rank{Env: e, lost: make(map[int]error), maxWait: time.Second}
		r.engine = p2p.New(p2p.Config{Protocol: s.protocol, EagerLimit: 1024}, r)
		var err error
		if r.Carrier, err = carrier.Open(e, cfg, r); err != nil {
			return err
		}
		if err := program(r); err != nil {
			return err
		}
		return r.leave()
	})
}

// designsOf returns the designs that NICs of a provider support: UD and Hybrid need datagrams,
// and all but UD need connections.
func designsOf(p *nics.Provider) []carrier.Design {
	return slices.DeleteFunc(carrier.Designs(), func(d carrier.Design) bool {
		return (d == carrier.UD || d == carrier.Hybrid) && !p.Caps.Has(verbs.CapUD) || d != carrier.UD && !p.Caps.Has(verbs.CapRC)
	})
}

func settings() (all []setting) {
	for _, nic := range nics.All() {
		for _, d := range designsOf(nic) {
			for _, p := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
				all = append(all, setting{nic.Name, d, p, 0})
				if !nic.OverTCP {
					all = append(all, setting{nic.Name, d, p, 20_000})
				}
			}
		}
	}
	return all
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed*13 + i>>8)
	}
	return b
}

// Every rank sends messages of many sizes to every rank, in every design.
func TestMessagesArrive(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) { runRanks(t, 4, s, carrier.Config{}, (*rank).sendAllSizes) })
	}
}

// Without RDMA, connections carry all data in packets, and nothing is registered for a message.
func TestMessagesArriveWithoutRDMA(t *testing.T) {
	for _, s := range settings() {
		if s.design != carrier.SendRecv && s.design != carrier.SRQ {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			runRanks(t, 4, s, carrier.Config{NoRDMA: true, PacketSize: 8 << 10}, func(r *rank) error {
				must.Do(t, r.sendAllSizes())
				if s := r.Stats(); s.Pieces < 3*10 || s.Registrations.Misses != 0 || r.Atomics() {
					return fmt.Errorf("%d packets with data, %d registrations, atomics: %v", s.Pieces, s.Registrations.Misses, r.Atomics())
				}
				return nil
			})
		})
	}
}

// sendAllSizes sends messages of many sizes to every rank, and checks those of every rank.
func (r *rank) sendAllSizes() error {
	sizes := []int{0, 1, 64, 1024, 1025, 5000, 70_000}
	var qs []*p2p.Request
	into := make(map[[2]int][]byte) // by peer and index of the size
	for peer := range r.Size {
		for i, n := range sizes {
			b := make([]byte, n)
			into[[2]int{peer, i}] = b
			qs = append(qs, r.irecv(peer, i, b))
		}
	}
	for i, n := range sizes {
		for peer := range r.Size {
			qs = append(qs, r.isend(peer, i, pattern(n, r.Rank*10+i)))
		}
	}
	if err := r.waitAll(qs...); err != nil {
		return err
	}
	for at, b := range into {
		if !bytes.Equal(b, pattern(len(b), at[0]*10+at[1])) {
			return fmt.Errorf("rank %d: %d bytes of rank %d are wrong", r.Rank, len(b), at[0])
		}
	}
	return nil
}

// Two ranks that exchange many messages use a ring, and reuse its slots.
func TestBusyPeersUseRings(t *testing.T) {
	for _, d := range []carrier.Design{carrier.RingSendRecv, carrier.RingSRQ} {
		for _, provider := range nics.NamesWith(func(p *nics.Provider) bool { return slices.Contains(designsOf(p), d) }) {
			t.Run(provider+"/"+string(d), func(t *testing.T) {
				runRanks(t, 2, setting{provider, d, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
					must.Do(t, r.exchangeMessages(500, 300))
					s := r.Stats()
					if s.Rings != 1 || s.Packets[carrier.OverRing] < 400 {
						return fmt.Errorf("rank %d: %d rings, %v packets by transport", r.Rank, s.Rings, s.Packets)
					}
					return nil
				})
			})
		}
	}
}

// HasPacket sees a packet in a ring or in shared memory until it is handled.
func TestHasPacket(t *testing.T) {
	for _, perHost := range []int{1, 2} {
		f := mpihost.Fabric{Ranks: 2, PerHost: perHost, Limit: time.Minute}
		_, err := runOnFabric(f, setting{"softroce", carrier.RingSRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
			must.Do(t, r.exchangeMessages(100, 300))
			if r.Rank == 1 {
				r.Proc.Sleep(time.Millisecond)
				return r.waitAll(r.isend(0, 1, make([]byte, 100)))
			}
			for r.Progress() {
			}
			if r.HasPacket(1) {
				t.Errorf("%d ranks per host: a packet before any is sent", perHost)
			}
			r.Proc.Sleep(2 * time.Millisecond)
			for range 2 { // looking does not handle it
				if !r.HasPacket(1) {
					t.Errorf("%d ranks per host: no packet", perHost)
				}
			}
			err := r.waitAll(r.irecv(1, 1, make([]byte, 100)))
			if r.HasPacket(1) {
				t.Errorf("%d ranks per host: the packet is there after it was handled", perHost)
			}
			return err
		})
		must.Do(t, err)
	}
}

// exchangeMessages makes ranks 0 and 1 exchange messages, one at a time and in bursts.
func (r *rank) exchangeMessages(n, size int) error {
	const burst = 50
	peer := 1 - r.Rank
	for i := range n {
		count := 1
		if i%burst == 0 {
			count = burst
		}
		var qs []*p2p.Request
		var bufs [][]byte
		for k := range count {
			bufs = append(bufs, make([]byte, size))
			qs = append(qs, r.irecv(peer, k, bufs[k]), r.isend(peer, k, pattern(size, i+k+r.Rank)))
		}
		if err := r.waitAll(qs...); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		for k, b := range bufs {
			if !bytes.Equal(b, pattern(size, i+k+peer)) {
				return fmt.Errorf("rank %d: message %d/%d is wrong", r.Rank, i, k)
			}
		}
	}
	return nil
}

// Ranks of one host use shared memory and no connections.
func TestRanksOfOneHostUseSharedMemory(t *testing.T) {
	must.Get(runOnFabric(mpihost.Fabric{Ranks: 2, PerHost: 2}, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		for _, size := range []int{0, 300, 7000, 200_000} {
			if err := r.exchangeMessages(10, size); err != nil {
				return err
			}
		}
		if s := r.Stats(); s.Connections != 0 || s.Packets[carrier.OverSharedMemory] == 0 || s.Packets[carrier.OverConnection] != 0 {
			return fmt.Errorf("rank %d: %d connections, %v packets by transport", r.Rank, s.Connections, s.Packets)
		}
		return nil
	}))(t)
}

// An idle connection is closed, and established again.
func TestIdleConnectionsAreClosed(t *testing.T) {
	for _, d := range []carrier.Design{carrier.SendRecv, carrier.RingSRQ} {
		t.Run(string(d), func(t *testing.T) {
			runRanks(t, 2, setting{"softroce", d, p2p.RGET, 0}, carrier.Config{IdleTimeout: 10 * time.Millisecond}, func(r *rank) error {
				for round := range 3 {
					must.Do(t, r.exchangeMessages(60, 200))
					must.Do(t, r.wait("the end of the connection", func() bool { return r.Stats().Connections == 0 }))
					if s := r.Stats(); s.ConnectionsOpened != uint64(round+1) || s.ConnectionsClosed != uint64(round+1) {
						return fmt.Errorf("rank %d, round %d: opened %d, closed %d", r.Rank, round, s.ConnectionsOpened, s.ConnectionsClosed)
					}
				}
				return nil
			})
		})
	}
}

// A rank that waits for a killed or unreachable peer gets an error.
func TestDeadOrUnreachablePeerIsLost(t *testing.T) {
	for _, s := range settings() {
		if s.loss != 0 || s.protocol != p2p.RGET {
			continue
		}
		for _, fault := range []string{"killed", "link down"} {
			t.Run(s.String()+"/"+fault, func(t *testing.T) {
				f := mpihost.Fabric{Ranks: 3, Script: func(w *mpihost.World) {
					w.At(10*time.Millisecond, func() {
						if fault == "killed" {
							w.Kill(2)
						} else {
							w.LinkDown(2, -1)
						}
					})
				}}
				out, _ := runOnFabric(f, s, carrier.Config{}, func(r *rank) error {
					q := &p2p.Request{Peer: (r.Rank + 2) % 3, Buf: make([]byte, 8)}
					if r.Rank == 2 {
						q.Peer = 0
					}
					if r.Rank == 1 {
						q.Peer = 2
					}
					r.engine.Irecv(q)
					if err := r.wait("a receive", q.Done); err != nil {
						return err
					}
					if q.Err == nil {
						return fmt.Errorf("rank %d: received a message", r.Rank)
					}
					return errDone
				})
				for i, r := range out.Ranks {
					if (i != 2 || fault == "link down") && !errors.Is(r.Err, errDone) {
						t.Errorf("rank %d: %v", i, r.Err)
					}
				}
			})
		}
	}
}

// A rank detects a dead peer while other peers keep sending to it.
func TestPeerLossIsDetectedDuringOtherTraffic(t *testing.T) {
	f := mpihost.Fabric{Ranks: 3, Script: func(w *mpihost.World) {
		w.At(1250*time.Millisecond, func() { w.Kill(2) })
	}}
	must.Get(runOnFabric(f, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		r.maxWait = 10 * time.Millisecond
		for round := range 20 {
			q := &p2p.Request{Peer: 1 - r.Rank, Buf: make([]byte, 8)}
			switch r.Rank {
			case 0:
				r.engine.Irecv(q)
			case 1:
				r.engine.Isend(q)
				if err := r.waitAll(q); err != nil {
					return err
				}
			}
			until := time.Duration(round) * 200 * time.Millisecond
			if err := r.wait("time to pass", func() bool { return r.Now() >= until }); err != nil {
				return err
			}
		}
		if r.Rank == 0 && r.lost[2] == nil {
			return fmt.Errorf("rank 0 has not lost rank 2 at %[2]v: lost %[1]v", r.lost, r.Now())
		}
		return nil
	}))(t)
}

var errDone = errors.New("the peer is lost, as expected")

// atomicOwner is the owner of atomics.
type atomicOwner struct {
	old  []uint64
	done int
	err  error
}

func (a *atomicOwner) Fetched(old uint64) { a.old = append(a.old, old) }

// All ranks add to a word of rank 0, rank 0 included.
func TestAtomics(t *testing.T) {
	const each = 20
	for _, s := range []setting{{"softroce", carrier.SRQ, p2p.RGET, 0}, {"softiwarp", carrier.SendRecv, p2p.RGET, 0}, {"dgiwarp", carrier.UD, p2p.RGET, 0}} {
		t.Run(s.String(), func(t *testing.T) {
			var at wire.Memory // all ranks share the variable
			word := make([]uint64, 1)
			runRanks(t, 3, s, carrier.Config{}, func(r *rank) error {
				if !r.Atomics() {
					return errors.New("Atomics is false")
				}
				if r.Rank == 0 {
					region := must.Get(r.Carrier.Register(unsafe.Slice((*byte)(unsafe.Pointer(&word[0])), 8)))(t)
					at = region.Memory()
					defer r.Carrier.Release(region) // after the last barrier
				}
				must.Do(t, r.barrier())
				a := &atomicOwner{}
				for range each {
					r.FetchAdd(0, at, 1, a)
				}
				must.Do(t, r.wait("atomics", func() bool { return a.done == each }))
				must.Do(t, r.barrier())
				for i := 1; i < each; i++ {
					if a.old[i] <= a.old[i-1] {
						return fmt.Errorf("rank %d fetched %v", r.Rank, a.old)
					}
				}
				return a.err
			})
			if word[0] != 3*each {
				t.Errorf("the word is %d", word[0])
			}
		})
	}
}

// Ranks of one host can also use their NIC, which then sends to itself.
func TestRanksOfOneHostCanUseNIC(t *testing.T) {
	for _, s := range []setting{{"softroce", carrier.RingSRQ, p2p.RPUT, 0}, {"softiwarp", carrier.SendRecv, p2p.RGET, 0}, {"dgiwarp", carrier.UD, p2p.RGET, 0}} {
		t.Run(s.String(), func(t *testing.T) {
			must.Get(runOnFabric(mpihost.Fabric{Ranks: 2, PerHost: 2}, s, carrier.Config{NoSharedMemory: true}, func(r *rank) error { return r.exchangeMessages(60, 5000) }))(t)
		})
	}
}

// Data of a frequently used buffer is gathered, over any transport.
func TestFrequentBuffersAreGathered(t *testing.T) {
	const times, size = 200, 700
	for _, s := range []setting{
		{"softroce", carrier.SRQ, p2p.RGET, 0},
		{"softroce", carrier.RingSRQ, p2p.RGET, 0},
		{"softroce", carrier.UD, p2p.RGET, 20_000},
		{"softiwarp", carrier.RingSendRecv, p2p.RGET, 0},
		{"dgiwarp", carrier.UD, p2p.RGET, 0},
	} {
		t.Run(s.String(), func(t *testing.T) {
			cfg := carrier.Config{Reuse: memory.Reuse{Thresholds: memory.Thresholds{8}}}
			runRanks(t, 2, s, cfg, func(r *rank) error {
				buf := make([]byte, size)
				for i := range times {
					q := &p2p.Request{Peer: 1 - r.Rank, Buf: buf}
					if copy(buf, pattern(size, i)); r.Rank == 0 {
						r.engine.Isend(q)
					} else {
						clear(buf)
						r.engine.Irecv(q)
					}
					must.Do(t, r.waitAll(q))
					if r.Rank == 1 && !bytes.Equal(buf, pattern(size, i)) {
						return fmt.Errorf("message %d is wrong", i)
					}
				}
				if n := r.Stats().Gathered; r.Rank == 0 && n < times-8 {
					return fmt.Errorf("%d of %d messages were gathered", n, times)
				}
				return nil
			})
		})
	}
}
