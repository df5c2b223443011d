package fuzz_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// siege is two victims with somebody hostile between them: each is the other's
// peer, and gets what the program makes of what that one sends.
type siege struct {
	*pair
	t       testing.TB
	victims [2]*victim
}

func besiege(t testing.TB, p *pair) *siege {
	t.Helper()
	p.hostile = true
	s := &siege{pair: p, t: t}
	for i, d := range p.devs {
		s.victims[i] = newVictim(t, "host"+string(rune('0'+i)), d)
	}
	return s
}

// join makes a queue pair of a kind on either side, each with the other as its
// peer; ready takes one to RTS.
func (s *siege) join(kind verbs.QPType, shared bool, ready func(q *queue, i int, peer verbs.QPN) error) {
	s.t.Helper()
	qs := [2]*queue{s.victims[0].queue(kind, shared), s.victims[1].queue(kind, shared)}
	for i, q := range qs {
		q.knows(s.victims[1-i])
		must.Do(s.t, ready(q, i, qs[1-i].qp.QPN()))
	}
}

// learn gives the hostile one what there is to know: keys, addresses, numbers.
func (s *siege) learn(more ...uint64) {
	s.values = append(more, 0, 1, 0xff, 0xffff, 0xffffff, 0xffffffff, 1<<31, 1<<47)
	for _, v := range s.victims {
		m := v.mem
		for _, mr := range m.regions() {
			s.values = append(s.values, uint64(mr.RKey()), mr.Addr(), mr.Addr()+uint64(mr.Len()))
			s.regions = append(s.regions, region{uint32(mr.RKey()), mr.Addr(), mr.Addr() + uint64(mr.Len())})
		}
		opened := m.behind.Addr() + windowAt - behindAt
		s.regions = append(s.regions, region{uint32(verbs.NextRKey(m.window.RKey())), opened, opened + windowLen})
		s.values = append(s.values, uint64(m.window.RKey()), uint64(verbs.NextRKey(m.window.RKey())))
		for _, q := range v.queues {
			s.values = append(s.values, uint64(q.qp.QPN()))
		}
	}
}

// rounds posts what the program says, and lets time pass in between.
func (s *siege) rounds(prog *program) {
	s.t.Helper()
	for _, v := range s.victims {
		v.queues[0].bind()
	}
	for range 4 {
		for _, v := range s.victims {
			for _, q := range v.queues {
				q.recv(800)
				for _, b := range prog.take(3) {
					q.work(b)
				}
			}
		}
		s.pass(300 * time.Microsecond)
	}
}

// pass lets time pass and looks at what has come of it.
func (s *siege) pass(d time.Duration) {
	s.t.Helper()
	must.Do(s.t, s.RunUntil(s.Now().Add(d)))
	for _, v := range s.victims {
		v.look()
	}
}

// finish lets everything come to an end, by itself and then by force, and checks
// that nothing is left.
func (s *siege) finish() {
	s.t.Helper()
	s.pass(time.Second)
	for _, v := range s.victims {
		v.fail()
	}
	// What was sent before may still be sent again by RD, until that gives up.
	s.pass(time.Second)
	s.pass(2 * rd.DefaultTiming().GiveUp)
	sent := s.count
	s.pass(time.Minute)
	if more := s.count - sent; more > 0 {
		s.t.Fatalf("%d packets came from devices whose queue pairs had long been in ERR", more)
	}
	for _, v := range s.victims {
		v.close()
	}
}

// attrs is how the queue pairs of a siege talk: with small packets, and without
// patience.
func (s *siege) attrs(i int, peer verbs.QPN) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU256, RQPSN: 0xfffffc, SQPSN: 0xfffffc, DestQPN: peer, Access: everyRight, Port: 1,
		AH:          verbs.AHAttr{GRH: verbs.GRH{DGID: verbs.GIDFrom(s.addrs[1-i]), HopLimit: 64}, Port: 1},
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 1, Timeout: 8, RetryCnt: 3, RNRRetry: 3, QKey: siegeKey,
	}
}

const siegeKey = 0x11

// rise takes a queue pair from RESET to RTS.
func rise(qp verbs.QP, attr verbs.QPAttr, masks [3]verbs.QPAttrMask) error {
	for i, to := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS} {
		attr.State = to
		if err := qp.Modify(attr, verbs.QPAttrState|masks[i]); err != nil {
			return err
		}
	}
	return nil
}

var (
	initMask  = verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	ucRTR     = verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	rcMasks   = [3]verbs.QPAttrMask{initMask | verbs.QPAttrAccessFlags, ucRTR | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic}
	ucMasks   = [3]verbs.QPAttrMask{initMask | verbs.QPAttrAccessFlags, ucRTR, verbs.QPAttrSQPSN}
	udMasks   = [3]verbs.QPAttrMask{initMask | verbs.QPAttrQKey, 0, verbs.QPAttrSQPSN}
	kindMasks = map[verbs.QPType][3]verbs.QPAttrMask{verbs.QPTypeRC: rcMasks, verbs.QPTypeUC: ucMasks, verbs.QPTypeUD: udMasks}
)

// ready takes a queue pair to RTS, and gives one of datagrams its peer's address.
func (s *siege) ready(q *queue, i int, peer verbs.QPN) error {
	attr := s.attrs(i, peer)
	if q.kind == verbs.QPTypeUD {
		ah, err := q.v.pd.CreateAH(attr.AH)
		if err != nil {
			return err
		}
		q.to = verbs.UD{AH: ah, QPN: peer, QKey: siegeKey}
	}
	return rise(q.qp, attr, kindMasks[q.kind])
}

// FuzzRoCEPeer: somebody between two soft-RoCE devices sees all and makes packets
// with a right ICRC. Nothing is written but where a peer may, and to what was posted
// for it; every request completes once, in order; and nothing goes on for ever.
func FuzzRoCEPeer(f *testing.F) {
	hostileSeeds(func(b []byte) { f.Add(b) })
	capturedPackets(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { rocePeer(t, b) })
}

func rocePeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	work := newProgram(prog.take(int(prog.octet())))
	s := roceSiege(t, rocePair(t, prog, how&1 == 1), how)
	s.rounds(work)
	s.finish()
	s.end(t)
}

// roceSiege has queue pairs of all kinds, and one pair that the connection manager
// may make.
func roceSiege(t testing.TB, p *pair, how byte) *siege {
	t.Helper()
	s := besiege(t, p)
	s.join(verbs.QPTypeRC, false, s.ready)
	s.join(verbs.QPTypeRC, true, s.ready)
	s.join(verbs.QPTypeUC, false, s.ready)
	s.join(verbs.QPTypeUD, how&2 == 2, s.ready)
	s.learn(siegeKey, 0xfffffc, 0x11, 0x64, 0x8b)
	if how&4 == 4 {
		s.call()
	}
	return s
}

// call has one device connect to the other through the connection manager, on the
// same wire. Whatever comes of it, both are told in the end.
func (s *siege) call() {
	param := verbs.ConnParam{ResponderResources: 2, InitiatorDepth: 2, RetryCount: 3, RNRRetryCount: 3, PrivateData: []byte("hello")}
	at := netip.AddrPortFrom(s.addrs[1], 4711)
	s.Go("listener", func(p *sim.Proc) error {
		cm, err := s.devs[1].CM()
		if err != nil {
			return err
		}
		l, err := cm.Listen(at, verbs.PortSpaceTCP, 4)
		if err != nil {
			return err
		}
		q := s.victims[1].queue(verbs.QPTypeRC, false)
		q.knows(s.victims[0])
		if req, err := l.GetRequest(50 * time.Millisecond); err == nil {
			if conn, err := req.Accept(q.qp, param, 50*time.Millisecond); err == nil {
				q.work(3)
				_ = conn.WaitDisconnect(50 * time.Millisecond)
			}
		}
		return l.Close()
	})
	s.Go("caller", func(p *sim.Proc) error {
		cm, err := s.devs[0].CM()
		if err != nil {
			return err
		}
		q := s.victims[0].queue(verbs.QPTypeRC, false)
		q.knows(s.victims[1])
		p.Sleep(10 * time.Microsecond)
		if conn, err := cm.Connect(q.qp, at, param, 50*time.Millisecond); err == nil {
			q.work(0)
			q.work(6)
			p.Sleep(time.Millisecond)
			_ = conn.Disconnect()
		}
		return nil
	})
}

// FuzzDatagramPeer is the same of datagram-iWARP, of either service.
func FuzzDatagramPeer(f *testing.F) {
	hostileSeeds(func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { datagramPeer(t, b) })
}

func datagramPeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	work := newProgram(prog.take(int(prog.octet())))
	s := datagramSiege(t, datagramPair(t, prog, how&1 == 1, dgiwarp.QPOptions{}, rd.DefaultTiming()), how)
	s.rounds(work)
	s.finish()
	s.end(t)
}

// datagramSiege has queue pairs of both services, with receives of their own and
// shared ones.
func datagramSiege(t testing.TB, p *pair, how byte) *siege {
	t.Helper()
	s := besiege(t, p)
	for _, opt := range []dgiwarp.QPOptions{{}, {Reliable: true}} {
		opt.Isolate = how&4 == 4
		for _, shared := range []bool{false, true} {
			for i, v := range s.victims {
				v.dev = optioned{s.devs[i].(*dgiwarp.Device), opt}
			}
			s.join(verbs.QPTypeUD, shared, s.ready)
			for _, v := range s.victims {
				if q := v.queues[len(v.queues)-1]; opt.Reliable {
					q.aside = v.books.open(q.sq.name+" that have no peer", true)
				}
			}
		}
	}
	s.learn(siegeKey, 1, 2, 3, 0x10, 0x40)
	return s
}

// optioned makes queue pairs of one service.
type optioned struct {
	*dgiwarp.Device
	opt dgiwarp.QPOptions
}

func (o optioned) CreateQP(in verbs.QPInit) (verbs.QP, error) { return o.CreateQPWith(in, o.opt) }

// hostileSeeds have every queue do a bit of everything, and everything done to some
// packet of it.
func hostileSeeds(add func([]byte)) {
	var busy []byte
	for i := range byte(96) {
		busy = append(busy, i*29)
	}
	for _, how := range []byte{0, 3, 5, 6} {
		head := append([]byte{how, byte(len(busy))}, busy...)
		add(head)
		for op := range byte(pathAll) {
			seed := append(head[:len(head):len(head)], op<<4)
			for i := range byte(40) {
				seed = append(seed, op|0x20, i*3, i*11, i, op, i*7)
			}
			add(seed)
		}
	}
	// Everything that reaches for memory reaches for that of each region, at its
	// beginning and beyond its end.
	for which := range byte(14) {
		for _, near := range []byte{0, 0xf8, 0x70} {
			seed := []byte{which & 1, 24, 6, 8, 10, 6, 8, 13, 6, 7, 9, 11, 8, 6, 6, 8, 10, 6, 8, 13, 6, 7, 9, 11, 8, 6}
			for range 60 {
				seed = append(seed, pathPut|0x10, 0xff, which, near)
			}
			add(seed)
		}
	}
	for seed := range uint64(8) {
		add(noise(seed, 100+int(seed)*80))
	}
}
