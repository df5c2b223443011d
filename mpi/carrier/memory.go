package carrier

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// registered is memory with an MR on every rail. All MRs have the same address.
type registered struct {
	addr uint64
	buf  []byte
	mrs  [wire.MaxRails]verbs.MR
}

const peerAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Gaps between regions let accesses beyond the end of a region fail.
const (
	firstAddr = 1 << 20
	addrGap   = 4 << 10
)

// register registers memory on all rails. Addresses are assigned in sequence, which makes
// runs reproducible.
func (c *Carrier) register(buf []byte) (m *registered, err error) {
	m = &registered{addr: c.nextAddr, buf: buf}
	c.nextAddr += uint64(len(buf)+2*addrGap-1) &^ (addrGap - 1)
	for i, r := range c.rails {
		init := verbs.MRInit{Buf: buf, Addr: m.addr, Access: r.access}
		c.chargeRegister(len(buf))
		m.mrs[i], err = r.pd.RegMR(init)
		if err != nil && len(c.retired) > 0 { // retired regions may use up the NIC's resources
			if err = c.deregisterRetired(forever); err == nil {
				m.mrs[i], err = r.pd.RegMR(init)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register %d bytes on rail %d: %w", len(buf), i, err), c.deregister(m))
		}
	}
	c.byKey[uint32(m.mrs[0].RKey())] = m
	return m, nil
}

func (c *Carrier) deregister(m *registered) (err error) {
	if m.mrs[0] != nil {
		delete(c.byKey, uint32(m.mrs[0].RKey()))
	}
	for _, mr := range m.mrs {
		if mr != nil {
			c.chargeDeregister(len(m.buf))
			err = errors.Join(err, mr.Close())
		}
	}
	return err
}

// deregisterDelay is how long unused memory stays registered. The network may still hold a
// duplicate read request for it, and a NIC would end the connection over an invalid key.
const deregisterDelay = 10 * time.Millisecond

// retired is memory that is deregistered later.
type retired struct {
	mem   *registered
	until time.Duration
}

// retire schedules memory for deregistration and resets its reuse count.
func (c *Carrier) retire(m *registered) error {
	if c.frequent != nil {
		c.frequent.Reset(addressOf(m.buf))
	}
	c.retired = append(c.retired, retired{m, c.Now() + deregisterDelay})
	return nil
}

// deregisterRetired deregisters retired memory whose delay has passed.
func (c *Carrier) deregisterRetired(now time.Duration) (err error) {
	n := 0
	for n < len(c.retired) && c.retired[n].until <= now {
		err = errors.Join(err, c.deregister(c.retired[n].mem))
		n++
	}
	if n > 0 {
		c.retired = slices.Delete(c.retired, 0, n)
	}
	return err
}

// forever is later than every delay.
const forever = time.Duration(math.MaxInt64)

// sge returns n bytes at an offset as an SGE for a rail.
func (m *registered) sge(rail, off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.mrs[rail].LKey()}
}

// memory describes the memory from an offset on to a peer.
func (m *registered) memory(rails, off int) wire.Memory {
	w := wire.Memory{Addr: m.addr + uint64(off), Rails: uint8(rails)}
	for i := range rails {
		w.Keys[i] = uint32(m.mrs[i].RKey())
	}
	return w
}

// ownMemory returns the registered memory that a peer addresses.
func (c *Carrier) ownMemory(addr uint64, key uint32, n int) ([]byte, error) {
	m := c.byKey[key]
	if m == nil || addr < m.addr || addr-m.addr > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-(addr-m.addr) {
		return nil, fmt.Errorf("%w: %d bytes at %#x with key %#x are not registered here", errMalformed, n, addr, key)
	}
	off := int(addr - m.addr)
	return m.buf[off : off+n], nil
}

// Region is a buffer that NICs can access.
type Region struct {
	entry  *regcache.Entry[*registered] // nil for a bounce buffer
	bounce *buffer                      // bounce buffer, if any
	sink   []byte                       // destination of data that is read into the bounce buffer
	mem    *registered
	off    int
	len    int
	rails  int
}

// Memory describes the region to peers.
func (r *Region) Memory() wire.Memory { return r.mem.memory(r.rails, r.off) }

// Register makes a buffer accessible to peers until Release. It must not be empty.
func (c *Carrier) Register(buf []byte) (*Region, error) {
	c.chargeLookup()
	e, err := c.cache.Get(buf)
	if err != nil {
		return nil, err
	}
	r := c.newRegion()
	*r = Region{entry: e, mem: e.Region, off: e.Offset(buf), len: len(buf), rails: len(c.rails)}
	return r, nil
}

func (c *Carrier) newRegion() *Region {
	if n := len(c.idleRegions); n > 0 {
		r := c.idleRegions[n-1]
		c.idleRegions = c.idleRegions[:n-1]
		return r
	}
	return new(Region)
}

// Release releases a region. Its registration may stay in the cache.
func (c *Carrier) Release(r *Region) {
	if r.bounce != nil {
		r.bounce.release()
		c.bounceBuffers--
	} else if err := c.cache.Release(r.entry); err != nil {
		c.failAll(fmt.Errorf("deregister: %w", err))
	}
	*r = Region{}
	c.idleRegions = append(c.idleRegions, r)
}

// Invalidate starts to deregister every cached memory region that overlaps buf. The program
// may free or reuse buf once Invalidated returns true.
func (c *Carrier) Invalidate(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	if c.frequent != nil { // the next buffer at this address has its own reuse count
		c.frequent.Invalidate(addressOf(buf), addressOf(buf)+uintptr(len(buf)))
	}
	inUse, err := c.cache.Invalidate(buf)
	if err == nil && inUse {
		err = fmt.Errorf("invalidate %d bytes: %w: a transfer is under way", len(buf), verbs.ErrBusy)
	}
	return err
}

// Invalidated reports whether all memory regions that overlap buf are deregistered.
func (c *Carrier) Invalidated(buf []byte) bool {
	from, to := addressOf(buf), addressOf(buf)+uintptr(len(buf))
	return !slices.ContainsFunc(c.retired, func(r retired) bool {
		at := addressOf(r.mem.buf)
		return at < to && at+uintptr(len(r.mem.buf)) > from
	})
}
