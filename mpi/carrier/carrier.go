package carrier

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
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
	// Arrived delivers a message; only Progress and PollFast call it. The data is valid until it
	// returns. An error means that the peer violated the protocol; the peer is lost.
	Arrived(peer int, h *wire.Header, data []byte) error
	// Finished reports once that an operation has ended and its owner may reuse the memory.
	Finished(owner any, op Op, err error)
	// Lost reports that a peer cannot be reached any more. Finished follows for operations
	// that the NIC still has.
	Lost(peer int, cause error)
	// EachAwaitedPeer visits the peers that the rank waits for, perhaps several times each.
	EachAwaitedPeer(visit func(peer int))
	// FlushNeeded reports deferred messages: the rank must call Flush or Progress soon.
	FlushNeeded()
}

// Fetcher is the owner of an atomic. It receives the old value.
type Fetcher interface{ Fetched(old uint64) }

// Carrier is the communication layer of one rank.
type Carrier struct {
	env              *transport.Env
	cfg              Config
	up               Upper
	mem              *memory.Registry
	rails            []*rail
	nextRail         int // whose connection sends the next packet
	nextTransferRail int // of the next transfer that is not striped
	requests         transport.Requests[work]
	packets          packetPool
	peerTable
	groups   multicastGroups
	conns    connections
	polled   polledRings
	loopback []outgoing // messages to this rank itself
	timing
	failure error
	stats   Stats
	costs   verbs.Costs // CPU times that the carrier spends; 0 in real time
}

// peerTable has the peers of a carrier.
type peerTable struct {
	peers []*peer // by rank; nil for those without traffic
	lists peerLists
}

// timing has the clock of a carrier, and its waits.
type timing struct {
	clock     clock
	waiter    waiter
	keepalive keepalive
}

// Open creates the carrier of a rank, for the layer above, up. All ranks must open theirs at the
// same time, because they exchange addresses.
func Open(e *transport.Env, cfg Config, up Upper) (*Carrier, error) {
	if e.Costs != nil && cfg.PollBackoff == 0 {
		cfg.PollBackoff = costedPollBackoff
	}
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if len(e.NICs) == 0 || len(e.NICs) > wire.MaxRails {
		return nil, fmt.Errorf("%d NICs: there must be 1 to %d", len(e.NICs), wire.MaxRails)
	}
	c := &Carrier{
		env: e, cfg: cfg, up: up, costs: e.HostCosts(), peerTable: peerTable{peers: make([]*peer, e.Size), lists: newPeerLists()},
		timing: timing{clock: clock{env: e}, waiter: waiter{env: e}},
	}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: %w", e.Rank, err), c.Close())
	}
	return c, nil
}

// open opens the rails (one for each NIC) and their queues, the memory and the shared memory, and
// exchanges endpoints.
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
	domains := make([]memory.Domain, len(c.rails))
	for i, r := range c.rails {
		domains[i] = r.Domain
	}
	c.mem = memory.New(memory.Config{
		Domains: domains, NoRDMA: !c.rdma(), OwnAddresses: c.env.Concurrent, PacketSize: c.cfg.PacketSize, CacheBytes: c.cfg.CacheBytes,
		Now: c.clock.now, Costs: c.env.Costs, Spend: c.env.Spend,
	})
	for _, r := range c.rails {
		if r.Attr.Caps.Has(verbs.CapUD) {
			if err := r.openDatagrams(&c.cfg); err != nil {
				return err
			}
		} else if err := r.listenCM(); err != nil {
			return err
		}
		if c.cfg.Design.hasSRQ() && r.Attr.Caps.Has(verbs.CapSRQ) {
			if err := r.createSRQ(&c.cfg); err != nil {
				return err
			}
		}
	}
	// The thresholds, the number of uses after which registering a buffer is cheaper than copying
	// it, cannot be measured in virtual time without costs.
	if reuse := c.cfg.Reuse; !reuse.Off && (reuse.Thresholds != nil || c.env.Concurrent || c.env.Costs != nil) {
		if err := c.mem.TrackReuse(reuse); err != nil {
			return err
		}
	}
	if err := c.openSharedMemory(); err != nil {
		return err
	}
	return c.exchangeEndpoints()
}

// Register registers a buffer, which must not be empty, so that peers can read and write it,
// by RDMA or in packets (Config.NoRDMA), until the caller calls Release of the returned region.
func (c *Carrier) Register(buf []byte) (wire.Region, error) { return asRegion(c.mem.Register(buf)) }

// Source returns a region with data, to write it to a peer. It may be a bounce buffer with a copy.
// The caller must Release it.
func (c *Carrier) Source(data []byte) (wire.Region, error) { return asRegion(c.mem.Source(data)) }

// Sink returns a region to read data of a peer into. It may be a bounce buffer, whose content is
// then copied to into. The caller must Release it.
func (c *Carrier) Sink(into []byte) (wire.Region, error) { return asRegion(c.mem.Sink(into)) }

// asRegion converts a result to the interface type. After an error it returns a nil interface, not
// an interface that holds a nil *memory.Region.
func asRegion(r *memory.Region, err error) (wire.Region, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Release releases a region. Its registration may stay in the cache.
func (c *Carrier) Release(r wire.Region) { c.release(r.(*memory.Region)) }

func (c *Carrier) release(r *memory.Region) {
	if err := c.mem.Release(r); err != nil {
		c.failAll(fmt.Errorf("deregister: %w", err))
	}
}

// Invalidate starts to deregister all memory regions that overlap buf. The program may free
// or reuse buf once Invalidated returns true.
func (c *Carrier) Invalidate(buf []byte) error { return c.mem.Invalidate(buf) }

// Invalidated reports whether all memory regions that overlap buf are deregistered.
func (c *Carrier) Invalidated(buf []byte) bool { return c.mem.Invalidated(buf) }

// exchangeEndpoints sends the endpoints of this rank to all ranks and receives theirs. All ranks then use
// the smallest MTU of a rail.
func (c *Carrier) exchangeEndpoints() error {
	mine := make([]transport.Endpoint, len(c.rails))
	for i, r := range c.rails {
		mine[i].GID, mine[i].MTU = r.GID, r.MTU
		if r.dg != nil {
			mine[i].QPN, mine[i].MaxMulticast = r.dg.QP.QPN(), r.dg.MaxMulticast
		}
		if r.cm != nil {
			mine[i].Port = r.cm.listener.Addr().Port()
		}
	}
	all, err := transport.ExchangeEndpoints(c.env, mine)
	if err != nil {
		return err
	}
	for i, r := range c.rails {
		r.endpoints = all
		for rank := range c.env.Size {
			r.LimitMTU(all.Of(rank, i).MTU)
		}
		if r.dg != nil {
			r.dg.LimitToMTU()
		}
	}
	c.groups.maxPacket = int(mine[0].MaxMulticast)
	for rank := range c.env.Size {
		c.groups.maxPacket = min(c.groups.maxPacket, int(all.Of(rank, 0).MaxMulticast))
	}
	return nil
}

// caps are the capabilities that all rails have.
func (c *Carrier) caps() verbs.Caps {
	all := ^verbs.Caps(0)
	for _, r := range c.rails {
		all &= r.Attr.Caps
	}
	return all
}

// Now returns the time.
func (c *Carrier) Now() time.Duration { return c.clock.now() }

// failAll handles the failure of a local NIC: all peers are lost, and outstanding requests fail.
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

// Close releases all resources. Unless AllDelivered returns true, operations under way are lost.
func (c *Carrier) Close() error {
	var errs []error
	for _, p := range c.peers {
		if p != nil {
			for k := range p.eachConn {
				errs = append(errs, k.close())
			}
		}
	}
	for _, r := range c.rails {
		errs = append(errs, r.close())
	}
	if c.mem != nil {
		errs = append(errs, c.mem.Close())
	}
	for _, r := range c.rails {
		errs = append(errs, r.ClosePD())
	}
	c.rails = nil
	return errors.Join(errs...)
}
