package softiwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// randomSide is one side of a lane, with a model of its results. Data is a function of the side and
// of the number of the request, so that each side knows the data of the other.
type randomSide struct {
	lane *randomLane
	side int
	peer *randomSide
	e    *end // its CQ has all completions
	srq  verbs.SRQ
	conn verbs.Conn

	src, inbox, target, sink, word []byte // src is the source of sends, writes and reads
	mrs                            map[*byte]verbs.MR

	posted, done int   // requests
	unsuccessful int   // of those done
	expected     []int // messages, by the number of the peer's request
	arrived      int   // of them
	flushed      int   // receives
	failed       bool  // a request or a receive ended in error
	fetched      uint64
	maxPolls     int // number of empty polls after which it fails its QP; 0 for no limit
}

// fillMessage fills b with the n-th message of a side.
func fillMessage(b []byte, side, n int) {
	for i := range b {
		b[i] = byte(i*31 + n*7 + side*101 + 1)
	}
}

func newRandomSide(d *Device, l *randomLane, side int) (*randomSide, error) {
	s := &randomSide{lane: l, side: side, e: &end{Dev: d}, mrs: map[*byte]verbs.MR{}}
	mine, theirs := l.plans[side], l.plans[1-side]
	for n := range theirs {
		if theirs[n].receives() {
			s.expected = append(s.expected, n)
		}
	}
	s.src = make([]byte, len(mine)*randomMaxLen)
	for n := range mine {
		fillMessage(s.src[n*randomMaxLen:(n+1)*randomMaxLen], side, n)
	}
	s.inbox, s.target = make([]byte, (len(s.expected)+1)*randomMaxLen), make([]byte, len(theirs)*randomMaxLen)
	s.sink, s.word = make([]byte, len(mine)*randomMaxLen), make([]byte, 8)
	e := s.e
	var err error
	if e.PD, err = d.AllocPD(); err != nil {
		return nil, err
	}
	if e.Ch, err = d.CreateCompChannel(); err != nil {
		return nil, err
	}
	if e.CQ, err = d.CreateCQ(verbs.CQInit{Depth: 512, Channel: e.Ch}); err != nil {
		return nil, err
	}
	for _, b := range [][]byte{s.src, s.inbox, s.target, s.sink, s.word} {
		if s.mrs[&b[0]], err = e.PD.RegMR(verbs.MRInit{Buf: b, Access: fullAccess}); err != nil {
			return nil, err
		}
	}
	init := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: l.depth[side], MaxRecvWR: len(s.expected) + 1, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInline: 64},
	}
	if l.shared && side == 1 {
		if s.srq, err = d.CreateSRQ(verbs.SRQInit{PD: e.PD, MaxWR: len(s.expected) + 1, MaxSGE: 3}); err != nil {
			return nil, err
		}
		init.SRQ = s.srq
	}
	if e.QP, err = d.CreateQP(init); err != nil {
		return nil, err
	}
	return s, s.postReceives()
}

// postReceives posts one receive for each message, and one that stays posted.
func (s *randomSide) postReceives() error {
	for i := range len(s.expected) + 1 {
		n := 0
		if i < len(s.expected) {
			n = s.lane.plans[1-s.side][s.expected[i]].n
		}
		wr := []verbs.RecvWR{{WRID: uint64(i), SGL: s.sges(s.inbox, i*randomMaxLen, n, 1+i%3)}}
		post := s.e.QP.PostRecv
		if s.srq != nil {
			post = s.srq.PostRecv
		}
		if _, err := post(wr); err != nil {
			return err
		}
	}
	return nil
}

// sges returns up to count SGEs for n bytes of registered memory.
func (s *randomSide) sges(b []byte, off, n, count int) (sgl []verbs.SGE) {
	mr := s.mrs[&b[0]]
	for ; count > 1 && n > 1; count-- {
		k := 1 + n/3
		sgl = append(sgl, verbs.SGEOf(mr, off, k))
		off, n = off+k, n-k
	}
	if n > 0 {
		sgl = append(sgl, verbs.SGEOf(mr, off, n))
	}
	return sgl
}

func (s *randomSide) remote(b []byte, off int) verbs.Remote {
	mr := s.mrs[&b[0]]
	return verbs.Remote{Addr: mr.Addr() + uint64(off), RKey: mr.RKey()}
}

// request returns the n-th work request.
func (s *randomSide) request(n int) verbs.SendWR {
	op := s.lane.plans[s.side][n]
	wr := verbs.SendWR{WRID: uint64(n) | 1<<32, Opcode: op.code, Flags: op.flags, Imm: uint32(n) * 3}
	off := n * randomMaxLen
	switch op.code {
	case verbs.OpRDMARead:
		// Read the peer's n-th message, or another one if it has fewer.
		wr.SGL, wr.Remote = s.sges(s.sink, off, op.n, op.sges), s.peer.remote(s.peer.src, s.readFrom(n))
	case verbs.OpAtomicFetchAdd:
		wr.SGL, wr.Remote, wr.Atomic.CompareAdd = s.sges(s.sink, off, 8, 1), s.peer.remote(s.peer.word, 0), uint64(n)+1
	default:
		wr.Remote = s.peer.remote(s.peer.target, off)
		if op.flags&verbs.SendInline != 0 {
			wr.Inline = s.src[off : off+op.n]
		} else {
			wr.SGL = s.sges(s.src, off, op.n, op.sges)
		}
	}
	return wr
}

func (s *randomSide) readFrom(n int) int { return n % len(s.lane.plans[1-s.side]) * randomMaxLen }

// run posts requests and polls completions until all are complete, or the connection has failed.
func (s *randomSide) run(p *sim.Proc) error {
	plan := s.lane.plans[s.side]
	wc := make([]verbs.WC, 8)
	for s.done < len(plan) || s.arrived < len(s.expected) {
		for !s.failed && s.posted < len(plan) && s.posted-s.done < s.lane.depth[s.side] {
			wr := s.request(s.posted)
			if _, err := s.e.QP.PostSend([]verbs.SendWR{wr}); errors.Is(err, verbs.ErrInvalid) && s.ending() {
				s.failed = true // the peer has closed the connection
				break
			} else if err != nil {
				return err
			}
			s.posted++
			if d := s.lane.pause[s.side]; d > 0 {
				p.Sleep(d)
			}
		}
		n, err := s.next(wc)
		if err != nil {
			return err
		}
		for i := range n {
			if err := s.completed(&wc[i]); err != nil {
				return fmt.Errorf("side %d: %w", s.side, err)
			}
		}
		if s.failed && s.posted == s.done && (s.srq != nil || s.arrived+s.flushed == len(s.expected)+1) {
			break
		}
	}
	return nil
}

// next waits for completions. Receives of an SRQ are not flushed, so that a side without requests
// must query the state. A corrupted length may make a peer wait for ever, so that a side gives up
// after maxPolls.
func (s *randomSide) next(wc []verbs.WC) (int, error) {
	for polls := 0; ; polls++ {
		if polls == s.maxPolls && s.maxPolls > 0 {
			if err := s.e.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
				return 0, err
			}
		}
		n, err := s.e.CQ.Poll(wc)
		if n > 0 || err != nil {
			return n, err
		}
		if err := s.e.CQ.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err = s.e.CQ.Poll(wc); n > 0 || err != nil {
			return n, err
		}
		if a, err := s.e.QP.Query(); err != nil || s.srq != nil && a.State == verbs.QPStateErr && s.posted == s.done {
			s.failed = true
			return 0, err
		}
		if _, err := s.e.Ch.Wait(time.Millisecond); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return 0, err
		}
	}
}

// ending reports whether the queue pair is no longer connected.
func (s *randomSide) ending() bool {
	a, err := s.e.QP.Query()
	return err == nil && a.State != verbs.QPStateRTS
}

func (s *randomSide) completed(wc *verbs.WC) error {
	if wc.WRID>>32 != 0 {
		return s.sent(wc, int(uint32(wc.WRID)))
	}
	if int(wc.WRID) != s.arrived+s.flushed {
		return fmt.Errorf("receive %d completed, want %d", wc.WRID, s.arrived+s.flushed)
	}
	if wc.Status != verbs.WCSuccess {
		s.failed = true
		s.flushed++
		return nil
	}
	if s.flushed > 0 {
		return fmt.Errorf("receive %d succeeded after one that was flushed", wc.WRID)
	}
	return s.received(wc)
}

// sent checks the completion of a request.
func (s *randomSide) sent(wc *verbs.WC, n int) error {
	if n != s.done || n >= s.posted {
		return fmt.Errorf("request %d of %d completed, want %d", n, s.posted, s.done)
	}
	s.done++
	if wc.Status != verbs.WCSuccess {
		s.failed = true
		s.unsuccessful++
		return nil
	}
	if s.unsuccessful > 0 {
		return fmt.Errorf("request %d succeeded after one that failed", n)
	}
	op, off := s.lane.plans[s.side][n], n*randomMaxLen
	switch op.code {
	case verbs.OpRDMARead:
		from := s.readFrom(n)
		if !bytes.Equal(s.sink[off:off+op.n], s.peer.src[from:from+op.n]) {
			return fmt.Errorf("read %d returned wrong bytes", n)
		}
	case verbs.OpAtomicFetchAdd:
		if got := binary.NativeEndian.Uint64(s.sink[off:]); got != s.fetched {
			return fmt.Errorf("atomic %d fetched %d, not %d", n, got, s.fetched)
		}
		s.fetched += uint64(n) + 1
	}
	return nil
}

// received checks a message.
func (s *randomSide) received(wc *verbs.WC) error {
	if s.arrived == len(s.expected) {
		return fmt.Errorf("unexpected message: %+v", wc)
	}
	n := s.expected[s.arrived]
	op := &s.lane.plans[1-s.side][n]
	at := s.arrived * randomMaxLen
	s.arrived++
	if n >= s.peer.posted+1 { // the peer may be in PostSend
		return fmt.Errorf("message %d arrived, %d were posted", n, s.peer.posted)
	}
	if imm := op.code != verbs.OpSend; imm != (wc.Flags&verbs.WCWithImm != 0) || imm && wc.Imm != uint32(n)*3 {
		return fmt.Errorf("message %d (%v) arrived as %+v", n, op.code, wc)
	}
	want := make([]byte, op.n)
	fillMessage(want, 1-s.side, n)
	got := s.inbox[at : at+op.n]
	if op.code == verbs.OpRDMAWriteImm {
		got = s.target[n*randomMaxLen : n*randomMaxLen+op.n]
	}
	if op.code != verbs.OpSendImm && int(wc.ByteLen) != op.n || !bytes.Equal(got, want) {
		return fmt.Errorf("message %d of %d bytes: %d bytes arrived, or wrong ones", n, op.n, wc.ByteLen)
	}
	return nil
}

// checkMemory checks the memory that the peer's writes and atomics changed. After a failure some
// may be missing.
func (s *randomSide) checkMemory() error {
	var sum, most uint64
	for n, op := range s.lane.plans[1-s.side] {
		slot := s.target[n*randomMaxLen : (n+1)*randomMaxLen]
		want := make([]byte, randomMaxLen)
		switch op.code {
		case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
			if n < s.peer.posted {
				fillMessage(want[:op.n], 1-s.side, n)
			}
		case verbs.OpAtomicFetchAdd:
			if n < s.peer.posted {
				most += uint64(n) + 1
			}
			if n < s.peer.done-s.peer.unsuccessful {
				sum += uint64(n) + 1
			}
		}
		for i := range slot {
			if slot[i] != want[i] && (slot[i] != 0 || !s.peer.failed) {
				return fmt.Errorf("side %d: byte %d of slot %d is %#x, not %#x", s.side, i, n, slot[i], want[i])
			}
		}
	}
	if got := binary.NativeEndian.Uint64(s.word); got < sum || got > most {
		return fmt.Errorf("side %d: the atomic word is %d, not between %d and %d", s.side, got, sum, most)
	}
	return nil
}

func (s *randomSide) close() error {
	var errs []error
	shut := func(c interface{ Close() error }) { errs = append(errs, c.Close()) }
	shut(s.e.QP)
	if s.srq != nil {
		shut(s.srq)
	}
	for _, b := range [][]byte{s.src, s.inbox, s.target, s.sink, s.word} {
		shut(s.mrs[&b[0]])
	}
	shut(s.e.CQ)
	shut(s.e.Ch)
	shut(s.e.PD)
	return errors.Join(errs...)
}
