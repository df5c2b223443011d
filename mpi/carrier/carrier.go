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

// Op is the kind of an operation.
type Op uint8

// The operations that Upper.Finished reports.
const (
	OpSend   Op = iota // the data buffer of a message can be reused
	OpRead             // data was read from the peer
	OpWrite            // data is in the peer's memory
	OpAtomic           // an atomic was executed
)

// Upper receives the events of a carrier.
type Upper interface {
	// Arrived delivers a message; only Progress and PollFast call it. The data is valid
	// until it returns. An error means that the peer violated the protocol, and the peer is
	// lost.
	Arrived(peer int, h *wire.Header, data []byte) error
	// Finished reports, once for each operation, that it has ended and its owner may reuse
	// the memory.
	Finished(owner any, op Op, err error)
	// Lost reports that a peer cannot be reached any more. Finished follows for operations
	// that the NIC still has.
	Lost(peer int, cause error)
	// EachAwaitedPeer visits the peers that the rank waits for.
	EachAwaitedPeer(visit func(peer int))
	// FlushNeeded reports that messages are deferred; the rank must call Flush or Progress
	// soon.
	FlushNeeded()
}

// Fetcher is the owner of an atomic. It receives the old value.
type Fetcher interface{ Fetched(old uint64) }

// Carrier is the communication layer of one rank.
type Carrier struct {
	env       *env.Env
	cfg       Config
	up        Upper
	rails     []*rail
	endpoints endpoints
	peers     []*peer

	frequent      *regcache.ReuseTable // nil if small data is always copied
	cache         *regcache.Cache[*registered]
	regions       []*registered // memory of pools and rings
	retired       []retired
	idleRegions   []*Region
	bounceBuffers int // in use
	byKey         map[uint32]*registered
	nextAddr      uint64
	sendPool      *pool
	smallPool     *pool // for short packets
	connRecvPool  *pool // receive buffers of connections without SRQ
	atomicPool    *pool // for results of atomics

	works     []work
	idleWorks []uint32
	idlePkts  []*packet

	loopback        []outgoing // messages to this rank itself
	busyPeers       []*peer    // with queued packets or transfers
	spareBusyPeers  []*peer    // empty slice for reuse
	endedConns      []*conn    // queue pairs to close
	timedPeers      []*peer    // with a timer that runs
	spareTimedPeers []*peer    // empty slice for reuse
	rings           []*ringIn  // to poll
	shmPeers        []*shmPeer // to poll
	coalescingPeers []*peer    // with coalesced messages
	progressCalls   uint64     // number of calls

	callbacks     callbackQueue // from connection manager tasks
	mustPoll      atomic.Bool   // rings or callbacks exist, which do not wake Wait
	lastActivity  atomic.Int64  // when Progress last did something
	activity      bool          // PollFast did something since
	lastKeepalive time.Duration // when silent peers were last checked
	// lastProgress is when Progress was last called, and stalledUntil when it was last
	// called after a long pause.
	lastProgress, stalledUntil time.Duration
	lastIdleCheck              time.Duration // when idle connections were last checked
	blocked                    atomic.Bool
	notified                   atomic.Bool  // the completion channel had an event
	nextDeadline               atomic.Int64 // of timers; 0 if none runs
	scratch                    []byte
	inProgress                 bool          // within Progress or PollFast
	cachedNow                  time.Duration // time of the current Progress; 0 if not read yet
	failure                    error
	stats                      Stats
}

// Open creates the carrier of a rank. All ranks open theirs at the same time.
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
	if err := c.cfg.restrictTo(c.caps()); err != nil {
		return err
	}
	c.openSendPools()
	for _, r := range c.rails {
		if r.attr.Caps.Has(verbs.CapUD) {
			if err := r.openDatagrams(&c.cfg); err != nil {
				return err
			}
		} else if err := r.listenCM(); err != nil {
			return err
		}
		if c.cfg.Design.hasSRQ() && r.attr.Caps.Has(verbs.CapSRQ) {
			if err := r.openShared(&c.cfg); err != nil {
				return err
			}
		}
	}
	if err := c.openReuse(); err != nil {
		return err
	}
	if err := c.openSharedMemory(); err != nil {
		return err
	}
	return c.exchangeEndpoints()
}

// caps are the capabilities that all rails have.
func (c *Carrier) caps() verbs.Caps {
	all := ^verbs.Caps(0)
	for _, r := range c.rails {
		all &= r.attr.Caps
	}
	return all
}

// Now returns the time. In real time Progress reads the clock once, because reading it
// takes a good part of the time of a short message.
func (c *Carrier) Now() time.Duration {
	if !c.inProgress || !c.env.Concurrent {
		return c.env.Proc.Now()
	}
	if c.cachedNow == 0 {
		c.cachedNow = c.env.Proc.Now()
	}
	return c.cachedNow
}

// failAll handles the failure of a local NIC: all peers are lost.
func (c *Carrier) failAll(err error) {
	if c.failure != nil {
		return
	}
	c.failure = err
	for rank := range c.peers {
		if rank != c.env.Rank {
			c.losePeer(c.peer(rank), err)
		}
	}
	c.failOutstanding(err)
}

// Close releases all resources. Operations under way are lost: see AllDelivered.
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
		errs = append(errs, c.cache.Flush(), c.deregisterRetired(forever))
	}
	for _, m := range c.regions {
		errs = append(errs, c.deregister(m))
	}
	for _, key := range sortedKeys(c.byKey) { // regions that their users have not released
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
