package carrier

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Op is something that a carrier was asked for.
type Op uint8

// The operations.
const (
	OpSend   Op = iota // the data of a word is its owner's again
	OpRead             // data was brought
	OpWrite            // data is in the peer's memory
	OpAtomic           // an atomic was carried out
)

// Upper is the rank above a carrier. Arrived is called from within Progress only.
type Upper interface {
	// Arrived takes a word. The data is valid until it returns. An error is a peer
	// that does not keep to the protocol; it is lost then.
	Arrived(peer int, h *wire.Header, data []byte) error
	// Finished says that an operation has ended, and its memory is the owner's again. The
	// owner is what was given with it. It is called once for each.
	Finished(owner any, op Op, err error)
	// Lost says that a peer is not to be reached any more. Finished of what a NIC still
	// has for it follows.
	Lost(peer int, cause error)
	// EachAwaitedPeer visits the peers that the rank waits for, or may have to.
	EachAwaitedPeer(visit func(peer int))
	// FlushNeeded says that words are kept back until the next Flush or Progress, which must
	// come soon.
	FlushNeeded()
}

// Fetcher is the owner of an atomic. It is told what was there before.
type Fetcher interface{ Fetched(old uint64) }

// Carrier is a rank's.
type Carrier struct {
	env   *env.Env
	cfg   Config
	up    Upper
	rails []*rail
	cards cards
	peers []*peer

	frequent    *regcache.ReuseTable // nil if small data is always copied
	cache       *regcache.Cache[*registered]
	regions     []*registered // of pools and rings
	retired     []retired
	idleRegions []*Region
	copies      int // regions that are copies
	byKey       map[uint32]*registered
	nextAddr    uint64
	sendPool    *pool
	smallPool   *pool // of short packets
	ownPool     *pool // receives of connections
	wordPool    *pool // results of atomics

	works     []work
	idleWorks []uint32
	idlePkts  []*packet

	own        []outgoing   // words to this rank itself
	busy       []*peer      // that something waits for room to
	spareBusy  []*peer      // empty: the next busy
	graves     []*conn      // that have ended
	timed      []*peer      // that have a deadline
	spareTimed []*peer      // empty: the next timed
	rings      []*ringIn    // to be looked into
	neighbours []*neighbour // ranks of this host
	filling    []*peer      // that words are being collected for
	era        uint64       // looks at what has come

	mail    mailbox       // from tasks that make connections
	lookOut atomic.Bool   // something may come that wakes nobody
	moving  atomic.Int64  // when anything moved last
	stirred bool          // something has moved since
	looked  time.Duration // when peers were last asked whether they are there
	// progressed is when Progress was last called, and resumed when that was after a
	// long pause.
	progressed, resumed time.Duration
	swept               time.Duration // when idle connections were last looked for
	parked              atomic.Bool
	woken               atomic.Bool  // a completion has told of itself
	due                 atomic.Int64 // when something must be done; 0 if nothing must
	scratch             []byte
	inside              bool          // Progress is under way
	nowRead             time.Duration // the time, once it was asked for in there; else 0
	broken              error
	stats               Stats
}

// Open makes a rank able to talk with all others. All of them must do so.
func Open(e *env.Env, cfg Config, up Upper) (*Carrier, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if len(e.NICs) == 0 || len(e.NICs) > wire.MaxRails {
		return nil, fmt.Errorf("%d NICs: there must be 1 to %d", len(e.NICs), wire.MaxRails)
	}
	c := &Carrier{
		env: e, cfg: cfg, up: up, peers: make([]*peer, e.Size),
		byKey: make(map[uint32]*registered), nextAddr: firstAddr,
	}
	const maxIdle = 1024
	c.cache = regcache.New(regcache.Config[*registered]{
		Register: c.register, Deregister: c.retire, MaxIdle: maxIdle, MaxIdleBytes: max(cfg.CacheBytes, 0),
	})
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: %w", e.Rank, err), c.Close())
	}
	return c, nil
}

func (c *Carrier) open() error {
	for i, nic := range c.env.NICs {
		r, err := c.openRail(i, nic)
		c.rails = append(c.rails, r)
		if err != nil {
			return err
		}
	}
	if err := c.cfg.fit(c.caps()); err != nil {
		return err
	}
	c.openSendPools()
	for _, r := range c.rails {
		if r.attr.Caps.Has(verbs.CapUD) {
			if err := r.openDatagrams(&c.cfg); err != nil {
				return err
			}
		} else if err := r.takeCalls(); err != nil {
			return err
		}
		if c.cfg.Design.shares() && r.attr.Caps.Has(verbs.CapSRQ) {
			if err := r.openShared(&c.cfg); err != nil {
				return err
			}
		}
	}
	if err := c.openReuse(); err != nil {
		return err
	}
	if err := c.openSegments(); err != nil {
		return err
	}
	return c.exchange()
}

// caps are what all rails have.
func (c *Carrier) caps() verbs.Caps {
	all := ^verbs.Caps(0)
	for _, r := range c.rails {
		all &= r.attr.Caps
	}
	return all
}

// Now is the time. In real time Progress reads it once: a short message takes not much
// longer than a few looks at the clock.
func (c *Carrier) Now() time.Duration {
	if !c.inside || !c.env.Concurrent {
		return c.env.Proc.Now()
	}
	if c.nowRead == 0 {
		c.nowRead = c.env.Proc.Now()
	}
	return c.nowRead
}

// fault is something wrong with a NIC of ours, not with a peer: none can be reached.
func (c *Carrier) fault(err error) {
	if c.broken != nil {
		return
	}
	c.broken = err
	for rank := range c.peers {
		if rank != c.env.Rank {
			c.lose(c.peer(rank), err)
		}
	}
	c.abandon(err)
}

// Close gives everything back. What is under way is lost: see Quiet.
func (c *Carrier) Close() error {
	var errs []error
	for _, p := range c.peers {
		if p != nil {
			for _, k := range p.conns {
				if k != nil {
					errs = append(errs, k.close())
				}
			}
		}
	}
	for _, r := range c.rails {
		errs = append(errs, r.close())
	}
	if c.cache != nil {
		errs = append(errs, c.cache.Flush(), c.release(forever))
	}
	for _, m := range c.regions {
		errs = append(errs, c.deregister(m))
	}
	for _, key := range sortedKeys(c.byKey) { // of whoever has not released it, and now cannot
		errs = append(errs, c.deregister(c.byKey[key]))
	}
	for _, r := range c.rails {
		if r.pd != nil {
			errs = append(errs, r.pd.Close())
		}
	}
	c.regions, c.rails = nil, nil
	return errors.Join(errs...)
}
