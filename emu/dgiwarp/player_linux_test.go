package dgiwarp

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// player is one side of a comparison: a queue pair of either provider with its
// memory, and how it addresses its peer.
type player struct {
	ch    verbs.CompChannel
	cq    verbs.CQ
	mr    verbs.MR
	qp    verbs.QP
	area  int // bytes before each received message
	ud    verbs.UD
	block bool

	recvs [1]verbs.RecvWR
	sends [list]verbs.SendWR
	wc    [64]verbs.WC
}

const (
	playerDepth = 256
	// list is how many messages a stream posts with one call.
	list = 16
)

// newPlayer makes a queue pair and its memory.
func newPlayer(d verbs.Context, typ verbs.QPType) (p *player, pd verbs.PD, err error) {
	p = &player{}
	if pd, err = d.AllocPD(); err != nil {
		return nil, nil, err
	}
	if p.ch, err = d.CreateCompChannel(); err != nil {
		return nil, nil, err
	}
	if p.cq, err = d.CreateCQ(verbs.CQInit{Depth: 4 * playerDepth, Channel: p.ch}); err != nil {
		return nil, nil, err
	}
	if p.mr, err = pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<17), Access: fullAccess}); err != nil {
		return nil, nil, err
	}
	p.qp, err = d.CreateQP(verbs.QPInit{
		Type: typ, PD: pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: playerDepth, MaxRecvWR: playerDepth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return p, pd, err
}

// prepare posts as many receives as fit, of size bytes each.
func (p *player) prepare(size int, block bool) error {
	p.block = block
	p.recvs[0] = verbs.RecvWR{SGL: []verbs.SGE{verbs.SGEOf(p.mr, 1<<16, p.area+size)}}
	for i := range p.sends {
		p.sends[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(p.mr, 0, size)}, UD: p.ud}
	}
	return p.receives(playerDepth)
}

func (p *player) receives(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(p.recvs[:]); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) send(n int) error {
	_, err := p.qp.PostSend(p.sends[:n])
	return err
}

// await takes at least one message and makes room for as many.
func (p *player) await() (int, error) {
	n, err := (&end{cq: p.cq, ch: p.ch}).nextWC(p.block, p.wc[:], 10*time.Second)
	for i := range n {
		if p.wc[i].Status != verbs.WCSuccess {
			return 0, fmt.Errorf("%v: %v", p.wc[i].Opcode, p.wc[i].Status)
		}
	}
	if err != nil {
		return 0, err
	}
	return n, p.receives(n)
}

// pingPong plays rounds of a message each way and returns the median time of a
// half round.
func pingPong(a, b *player, rounds int) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() {
		for range rounds {
			if _, err := b.await(); err != nil {
				errs <- err
				return
			}
			if err := b.send(1); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := a.send(1); err != nil {
			return 0, err
		}
		if _, err := a.await(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}

// A stream's sender may be window messages ahead of what the receiver has said
// that it has got, which it says for every grant of them. Neither service has
// another way to keep a sender from overrunning its receiver.
const (
	window = 128
	grant  = 32
)

// stream sends count messages from a to b and returns bits a second.
func stream(a, b *player, size, count int) (float64, error) {
	errs := make(chan error, 1)
	go func() {
		errs <- func() error {
			for got, told := 0, 0; got < count; {
				n, err := b.await()
				if err != nil {
					return err
				}
				for got += n; got-told >= grant; told += grant {
					if err := b.send(1); err != nil {
						return err
					}
				}
			}
			return nil
		}()
	}()
	start := time.Now()
	for sent, told := 0, 0; sent < count || told < count/grant*grant; {
		for sent < count && sent-told < window {
			n := min(list, count-sent)
			if err := a.send(n); err != nil {
				return 0, err
			}
			sent += n
		}
		n, err := a.await()
		if err != nil {
			return 0, fmt.Errorf("after %d, %d of them confirmed: %w", sent, told, err)
		}
		told += n * grant
	}
	took := time.Since(start)
	return float64(count) * float64(size) * 8 / took.Seconds(), <-errs
}
