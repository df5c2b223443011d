package softroce

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// connect joins two ends by hand, as a program with a channel of its own does.
func connect(a, b *end) error { return connectWith(a, b, 17) }

// connectWith is connect with a timeout of 4.096 µs times that power of two.
func connectWith(a, b *end, timeout uint8) error {
	for _, s := range []struct{ from, to *end }{{a, b}, {b, a}} {
		gid, err := s.to.dev.QueryGID(1, 0)
		if err != nil {
			return err
		}
		port, err := s.from.dev.QueryPort(1)
		if err != nil {
			return err
		}
		attr := verbs.QPAttr{
			State: verbs.QPStateInit, Port: 1, Access: remoteAccess, PathMTU: port.ActiveMTU, DestQPN: s.to.qp.QPN(),
			AH:              verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid.GID, HopLimit: 64}},
			MaxDestRdAtomic: 16, MaxRdAtomic: 16, MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
		}
		steps := []struct {
			state verbs.QPState
			mask  verbs.QPAttrMask
		}{
			{verbs.QPStateInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
			{verbs.QPStateRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
			{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
		}
		for _, st := range steps {
			attr.State = st.state
			if err := s.from.qp.Modify(attr, st.mask|verbs.QPAttrState); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends makes two connected RC ends on two devices.
func ends(da, db verbs.Context) (a, b *end, err error) {
	if a, err = newEnd(da, verbs.QPTypeRC); err != nil {
		return nil, nil, err
	}
	if b, err = newEnd(db, verbs.QPTypeRC); err != nil {
		return nil, nil, err
	}
	return a, b, connect(a, b)
}

// nextWC returns the next completion: by polling, or asleep until an event.
func (e *end) nextWC(block bool, wc []verbs.WC) (int, error) {
	for {
		n, err := e.cq.Poll(wc)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		if err := e.cq.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err = e.cq.Poll(wc); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.ch.Wait(10 * time.Second); err != nil {
			return 0, err
		}
	}
}

// pingPong plays rounds of an 8-byte SEND each way and returns the median time
// of a half round. Both ends have receives posted, and have as many afterwards.
func pingPong(a, b *end, rounds int, block bool) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() {
		p := newPlayer(b, block)
		for range rounds {
			if err := p.await(); err != nil {
				errs <- err
				return
			}
			if err := p.serve(); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	p := newPlayer(a, block)
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := p.serve(); err != nil {
			return 0, err
		}
		if err := p.await(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}

// pingPongEnds makes two connected ends with receives posted.
func pingPongEnds(da, db verbs.Context) (a, b *end, err error) {
	if a, b, err = ends(da, db); err != nil {
		return nil, nil, err
	}
	for _, e := range []*end{a, b} {
		if err := newPlayer(e, false).receives(32); err != nil {
			return nil, nil, err
		}
	}
	return a, b, nil
}

// player is one side of a ping-pong.
type player struct {
	*end
	block bool
	recv  []verbs.RecvWR
	send  []verbs.SendWR
	wc    []verbs.WC
}

func newPlayer(e *end, block bool) *player {
	const size = 8
	return &player{
		end: e, block: block, wc: make([]verbs.WC, 4),
		recv: []verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(e.mr, 4096, size)}}},
		send: []verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, size)}}},
	}
}

func (p *player) receives(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(p.recv); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) serve() error {
	_, err := p.qp.PostSend(p.send)
	return err
}

// await takes one message and makes room for the next.
func (p *player) await() error {
	n, err := p.nextWC(p.block, p.wc)
	if err != nil {
		return err
	}
	if n != 1 || p.wc[0].Status != verbs.WCSuccess {
		return fmt.Errorf("%d completions, %v", n, p.wc[0].Status)
	}
	return p.receives(1)
}

// confirmedPingPong plays as ibv_rc_pingpong does: a side sends its next message
// when the other's has come and its own last one is known to have arrived. It
// returns the mean time of a half round.
func confirmedPingPong(a, b *end, rounds int, block bool) (time.Duration, error) {
	errs := make(chan error, 1)
	play := func(e *end, first bool) error {
		p := newPlayer(e, block)
		p.send[0].Flags = verbs.SendSignaled
		if !first {
			if err := p.await(); err != nil {
				return err
			}
		}
		for range rounds {
			if err := p.serve(); err != nil {
				return err
			}
			for done := 0; done < 2; { // a message that came, and one that arrived
				n, err := p.nextWC(block, p.wc[:2-done])
				if err != nil {
					return err
				}
				for _, wc := range p.wc[:n] {
					if wc.Status != verbs.WCSuccess {
						return fmt.Errorf("%v: %v", wc.Opcode, wc.Status)
					}
					if wc.Opcode == verbs.WCOpRecv {
						if err := p.receives(1); err != nil {
							return err
						}
					}
				}
				done += n
			}
		}
		if first {
			return p.serve() // what the other side waits for
		}
		return nil
	}
	start := time.Now()
	go func() { errs <- play(b, false) }()
	err := play(a, true)
	took := time.Since(start)
	return took / time.Duration(2*rounds), errors.Join(err, <-errs)
}

// stream writes messages of size bytes for about the given time and returns
// bits a second.
func stream(a, b *end, size int, d time.Duration) (float64, error) {
	src, dst := make([]byte, size), make([]byte, size)
	smr, err := a.pd.RegMR(verbs.MRInit{Buf: src, Access: verbs.AccessLocalWrite})
	if err != nil {
		return 0, err
	}
	defer smr.Close()
	dmr, err := b.pd.RegMR(verbs.MRInit{Buf: dst, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite})
	if err != nil {
		return 0, err
	}
	defer dmr.Close()
	wr := []verbs.SendWR{{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(smr, 0, size)},
		Remote: verbs.Remote{Addr: dmr.Addr(), RKey: dmr.RKey()},
	}}
	wc := make([]verbs.WC, 8)
	posted, done := 0, 0
	start := time.Now()
	for time.Since(start) < d || done < posted {
		for posted-done < 4 && time.Since(start) < d {
			if _, err := a.qp.PostSend(wr); err != nil {
				return 0, err
			}
			posted++
		}
		n, err := a.cq.Poll(wc)
		if err != nil {
			return 0, err
		}
		for i := range n {
			if wc[i].Status != verbs.WCSuccess {
				return 0, fmt.Errorf("write %d: %v", done, wc[i].Status)
			}
			done++
		}
	}
	return float64(done) * float64(size) * 8 / time.Since(start).Seconds(), nil
}

func BenchmarkLoopback(b *testing.B) {
	da, db := loopbackPair(b)
	x, y, err := pingPongEnds(da, db)
	if err != nil {
		b.Fatal(err)
	}
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("pingpong/block=%v", block), func(b *testing.B) {
			half, err := pingPong(x, y, max(b.N, 100), block)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(half.Nanoseconds())/1e3, "µs/half")
		})
	}
	b.Run("write1M", func(b *testing.B) {
		for range b.N {
			bps, err := stream(x, y, 1<<20, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(bps/1e9, "Gb/s")
		}
	})
}
