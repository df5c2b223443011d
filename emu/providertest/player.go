package providertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Player is one side of a ping-pong or of a stream of messages, in real time. Its methods
// do not allocate.
type Player struct {
	*End
	Block bool           // wait for events instead of polling
	Sends []verbs.SendWR // a batch of equal, unsignaled sends
	recvs []verbs.RecvWR
	wcs   []verbs.WC
}

// NewPlayer makes a player for messages of size bytes. ud is the peer of a UD queue pair.
func NewPlayer(e *End, size int, block bool, ud verbs.UD) *Player {
	p := &Player{End: e, Block: block, wcs: make([]verbs.WC, 64)}
	area := 0
	if e.QP.Type() == verbs.QPTypeUD {
		area = verbs.GRHLen
	}
	p.recvs = []verbs.RecvWR{{SGL: e.SGL(len(e.Buf)/2, area+size)}}
	for range 16 {
		p.Sends = append(p.Sends, verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, size), UD: ud})
	}
	return p
}

// Receive posts n receives.
func (p *Player) Receive(n int) error {
	for range n {
		if _, err := p.QP.PostRecv(p.recvs); err != nil {
			return err
		}
	}
	return nil
}

// Serve sends n messages with one call.
func (p *Player) Serve(n int) error {
	_, err := p.QP.PostSend(p.Sends[:n])
	return err
}

// Next waits for completions, which must be successes.
func (p *Player) Next() ([]verbs.WC, error) {
	n, err := p.NextWC(p.Block, p.wcs, 10*time.Second)
	for i := range n {
		if p.wcs[i].Status != verbs.WCSuccess {
			return nil, fmt.Errorf("%v: %v", p.wcs[i].Opcode, p.wcs[i].Status)
		}
	}
	return p.wcs[:n], err
}

// Await waits for messages and posts as many receives.
func (p *Player) Await() (int, error) {
	wcs, err := p.Next()
	if err != nil {
		return 0, err
	}
	return len(wcs), p.Receive(len(wcs))
}

// turns plays rounds in which the player receives a message and sends one.
func (p *Player) turns(rounds int) error {
	for range rounds {
		if _, err := p.Await(); err != nil {
			return err
		}
		if err := p.Serve(1); err != nil {
			return err
		}
	}
	return nil
}

// PingPong plays rounds of one message each way and returns the median time of half a
// round. Both players have receives posted, and have as many afterwards.
func PingPong(a, b *Player, rounds int) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() { errs <- b.turns(rounds) }()
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := a.Serve(1); err != nil {
			return 0, err
		}
		if _, err := a.Await(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}
