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

// pairAttack is two devices with an attacker between them, who changes their packets as a program
// says.
type pairAttack struct {
	*pair
	t       testing.TB
	checked [2]*checkedDevice
}

func newPairAttack(t testing.TB, p *pair) *pairAttack {
	t.Helper()
	p.hostile = true
	s := &pairAttack{pair: p, t: t}
	for i, d := range p.devs {
		s.checked[i] = newCheckedDevice(t, "host"+string(rune('0'+i)), d)
	}
	return s
}

// connectQPs creates a queue pair on either side, each the peer of the other; ready moves one to
// RTS.
func (s *pairAttack) connectQPs(kind verbs.QPType, shared bool, ready func(q *queue, i int, peer verbs.QPN) error) {
	s.t.Helper()
	qs := [2]*queue{s.checked[0].newQueue(kind, shared), s.checked[1].newQueue(kind, shared)}
	for i, q := range qs {
		q.setRemotes(s.checked[1-i])
		must.Do(s.t, ready(q, i, qs[1-i].qp.QPN()))
	}
}

// setKnownValues tells the attacker keys, addresses and queue pair numbers.
func (s *pairAttack) setKnownValues(more ...uint64) {
	s.values = append(more, 0, 1, 0xff, 0xffff, 0xffffff, 0xffffffff, 1<<31, 1<<47)
	for _, v := range s.checked {
		m := v.mem
		for _, mr := range m.regions() {
			s.values = append(s.values, uint64(mr.RKey()), mr.Addr(), mr.Addr()+uint64(mr.Len()))
			s.regions = append(s.regions, region{uint32(mr.RKey()), mr.Addr(), mr.Addr() + uint64(mr.Len())})
		}
		opened := m.windowed.Addr() + windowAt - windowedAt
		s.regions = append(s.regions, region{uint32(verbs.NextRKey(m.window.RKey())), opened, opened + windowLen})
		s.values = append(s.values, uint64(m.window.RKey()), uint64(verbs.NextRKey(m.window.RKey())))
		for _, q := range v.queues {
			s.values = append(s.values, uint64(q.qp.QPN()))
		}
	}
}

// postWork posts requests by the program, in four rounds.
func (s *pairAttack) postWork(prog *program) {
	s.t.Helper()
	for _, v := range s.checked {
		v.queues[0].bind()
	}
	for range 4 {
		for _, v := range s.checked {
			for _, q := range v.queues {
				q.recv(800)
				for _, b := range prog.take(3) {
					q.work(b)
				}
			}
		}
		s.runFor(300 * time.Microsecond)
	}
}

// runFor runs the world for d and checks both devices.
func (s *pairAttack) runFor(d time.Duration) {
	s.t.Helper()
	must.Do(s.t, s.RunUntil(s.Now().Add(d)))
	for _, v := range s.checked {
		v.pollAndCheck()
	}
}

// finish waits for the requests, moves the queue pairs to ERR, and checks that all requests have
// completed and that the devices send nothing more.
func (s *pairAttack) finish() {
	s.t.Helper()
	s.runFor(time.Second)
	for _, v := range s.checked {
		v.fail()
	}
	// RD retransmits earlier packets until it gives up.
	s.runFor(time.Second)
	s.runFor(2 * rd.DefaultTiming().GiveUp)
	sent := s.count
	s.runFor(time.Minute)
	if more := s.count - sent; more > 0 {
		s.t.Fatalf("%d packets of devices whose queue pairs had long been in ERR", more)
	}
	for _, v := range s.checked {
		v.close()
	}
}

// attrs are the attributes of the queue pairs: a small path MTU, short timeouts and few retries.
func (s *pairAttack) attrs(i int, peer verbs.QPN) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU256, RQPSN: 0xfffffc, SQPSN: 0xfffffc, DestQPN: peer, Access: allAccess, Port: 1,
		AH:          verbs.AHAttr{GRH: verbs.GRH{DGID: verbs.GIDFrom(s.addrs[1-i]), HopLimit: 64}, Port: 1},
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 1, Timeout: 8, RetryCnt: 3, RNRRetry: 3, QKey: attackQKey,
	}
}

const attackQKey = 0x11

// toRTS moves a queue pair from RESET to RTS.
func toRTS(qp verbs.QP, attr verbs.QPAttr, masks [3]verbs.QPAttrMask) error {
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

// ready moves a queue pair to RTS, and gives one of type UD its peer's address.
func (s *pairAttack) ready(q *queue, i int, peer verbs.QPN) error {
	attr := s.attrs(i, peer)
	if q.kind == verbs.QPTypeUD {
		ah, err := q.v.pd.CreateAH(attr.AH)
		if err != nil {
			return err
		}
		q.to = verbs.UD{AH: ah, QPN: peer, QKey: attackQKey}
	}
	return toRTS(q.qp, attr, kindMasks[q.kind])
}

// FuzzRoCEPeer: an attacker between two soft-RoCE devices sees all packets and forges packets with
// a valid ICRC. The devices write only where the peer has access and into posted receives; every
// request completes once, in order; and the exchange ends.
func FuzzRoCEPeer(f *testing.F) {
	attackSeeds(func(b []byte) { f.Add(b) })
	capturedPackets(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { rocePeer(t, b) })
}

func rocePeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	work := newProgram(prog.take(int(prog.octet())))
	s := newRoCEAttack(t, rocePair(t, prog, how&1 == 1), how)
	s.postWork(work)
	s.finish()
	s.closeDevices(t)
}

// newRoCEAttack creates queue pairs of all types, and may start a connection by the CM.
func newRoCEAttack(t testing.TB, p *pair, how byte) *pairAttack {
	t.Helper()
	s := newPairAttack(t, p)
	s.connectQPs(verbs.QPTypeRC, false, s.ready)
	s.connectQPs(verbs.QPTypeRC, true, s.ready)
	s.connectQPs(verbs.QPTypeUC, false, s.ready)
	s.connectQPs(verbs.QPTypeUD, how&2 == 2, s.ready)
	s.setKnownValues(attackQKey, 0xfffffc, 0x11, 0x64, 0x8b)
	if how&4 == 4 {
		s.startCMConnection()
	}
	return s
}

// startCMConnection connects one device to the other through the connection manager. Either side
// may fail, but returns.
func (s *pairAttack) startCMConnection() {
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
		q := s.checked[1].newQueue(verbs.QPTypeRC, false)
		q.setRemotes(s.checked[0])
		if req, err := l.GetRequest(50 * time.Millisecond); err == nil {
			if conn, err := req.Accept(q.qp, param, 50*time.Millisecond); err == nil {
				q.work(3)
				_ = conn.WaitDisconnect(50 * time.Millisecond)
			}
		}
		return l.Close()
	})
	s.Go("client", func(p *sim.Proc) error {
		cm, err := s.devs[0].CM()
		if err != nil {
			return err
		}
		q := s.checked[0].newQueue(verbs.QPTypeRC, false)
		q.setRemotes(s.checked[1])
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

// FuzzDatagramPeer is FuzzRoCEPeer for both services of datagram-iWARP.
func FuzzDatagramPeer(f *testing.F) {
	attackSeeds(func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { datagramPeer(t, b) })
}

func datagramPeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	work := newProgram(prog.take(int(prog.octet())))
	s := newDatagramAttack(t, datagramPair(t, prog, how&1 == 1, dgiwarp.QPOptions{}, rd.DefaultTiming()), how)
	s.postWork(work)
	s.finish()
	s.closeDevices(t)
}

// newDatagramAttack creates queue pairs of both services, with and without a shared receive queue.
func newDatagramAttack(t testing.TB, p *pair, how byte) *pairAttack {
	t.Helper()
	s := newPairAttack(t, p)
	for _, opt := range []dgiwarp.QPOptions{{}, {Reliable: true}} {
		opt.Isolate = how&4 == 4
		for _, shared := range []bool{false, true} {
			for i, v := range s.checked {
				v.dev = deviceWithOptions{s.devs[i].(*dgiwarp.Device), opt}
			}
			s.connectQPs(verbs.QPTypeUD, shared, s.ready)
			for _, v := range s.checked {
				if q := v.queues[len(v.queues)-1]; opt.Reliable {
					q.localSQ = v.ledgers.open(q.sq.name+"without a peer", true)
				}
			}
		}
	}
	s.setKnownValues(attackQKey, 1, 2, 3, 0x10, 0x40)
	return s
}

// deviceWithOptions creates queue pairs with the options opt.
type deviceWithOptions struct {
	*dgiwarp.Device
	opt dgiwarp.QPOptions
}

func (o deviceWithOptions) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	return o.CreateQPWith(in, o.opt)
}

// attackSeeds adds programs in which every queue pair posts all kinds of requests, and every
// operation of the path is applied to some of their packets.
func attackSeeds(add func([]byte)) {
	var busy []byte
	for i := range byte(96) {
		busy = append(busy, i*29)
	}
	for _, how := range []byte{0, 3, 5, 6} {
		head := append([]byte{how, byte(len(busy))}, busy...)
		add(head)
		for op := range byte(pathOps) {
			seed := append(head[:len(head):len(head)], op<<4)
			for i := range byte(40) {
				seed = append(seed, op|0x20, i*3, i*11, i, op, i*7)
			}
			add(seed)
		}
	}
	// Requests that access memory are redirected to each region, at its start and beyond its end.
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
		add(randomBytes(seed, 100+int(seed)*80))
	}
}
