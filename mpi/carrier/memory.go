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

// registered is memory that the NICs of all rails can reach, everywhere under the
// same address.
type registered struct {
	addr uint64
	buf  []byte
	mrs  [wire.MaxRails]verbs.MR
}

// Peers may do everything: that memory is there for them is why it is registered.
const peerAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Between the addresses of two regions is a gap: who goes beyond the end of one is not
// in the next.
const (
	firstAddr = 1 << 20
	addrGap   = 4 << 10
)

// register makes memory reachable. Addresses are given out in turn, since those that
// memory has by chance would have no two runs be the same.
func (c *Carrier) register(buf []byte) (m *registered, err error) {
	m = &registered{addr: c.nextAddr, buf: buf}
	c.nextAddr += uint64(len(buf)+2*addrGap-1) &^ (addrGap - 1)
	for i, r := range c.rails {
		init := verbs.MRInit{Buf: buf, Addr: m.addr, Access: r.access}
		c.registers(len(buf))
		m.mrs[i], err = r.pd.RegMR(init)
		if err != nil && len(c.retired) > 0 { // what lingers may be what is lacking
			if err = c.release(forever); err == nil {
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
			c.deregisters(len(m.buf))
			err = errors.Join(err, mr.Close())
		}
	}
	return err
}

// linger is how long memory that nobody needs any more stays registered. The network
// may still have a copy of a request to read it, and a NIC that finds the memory gone
// ends the connection.
const linger = 10 * time.Millisecond

// retired is memory that lingers.
type retired struct {
	mem   *registered
	until time.Duration
}

// retire deregisters memory after a while. Whether it is worth to be registered again is
// to be shown again.
func (c *Carrier) retire(m *registered) error {
	if c.frequent != nil {
		c.frequent.Reset(addressOf(m.buf))
	}
	c.retired = append(c.retired, retired{m, c.Now() + linger})
	return nil
}

// release deregisters what has lingered until now.
func (c *Carrier) release(now time.Duration) (err error) {
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

// forever is after all that lingers.
const forever = time.Duration(math.MaxInt64)

// sge is a part of it, for the NIC of a rail.
func (m *registered) sge(rail, off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.mrs[rail].LKey()}
}

// memory is what a peer must know to reach it from an offset on.
func (m *registered) memory(rails, off int) wire.Memory {
	w := wire.Memory{Addr: m.addr + uint64(off), Rails: uint8(rails)}
	for i := range rails {
		w.Keys[i] = uint32(m.mrs[i].RKey())
	}
	return w
}

// within returns the memory that a peer means, which is to be within a region of ours.
func (c *Carrier) within(addr uint64, key uint32, n int) ([]byte, error) {
	m := c.byKey[key]
	if m == nil || addr < m.addr || addr-m.addr > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-(addr-m.addr) {
		return nil, fmt.Errorf("%w: %d bytes at %#x with key %#x are no memory of ours", errMalformed, n, addr, key)
	}
	off := int(addr - m.addr)
	return m.buf[off : off+n], nil
}

// Region is a buffer that peers can reach.
type Region struct {
	entry  *regcache.Entry[*registered] // nil if it is a copy
	copied *buffer                      // then
	sink   []byte                       // where what is read into the copy belongs; nil if it is written from
	mem    *registered
	off    int
	len    int
	rails  int
}

// Memory is where it is, as peers see it.
func (r *Region) Memory() wire.Memory { return r.mem.memory(r.rails, r.off) }

// Register makes a buffer reachable, which must not be empty, until it is released.
func (c *Carrier) Register(buf []byte) (*Region, error) {
	c.looks()
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

// Release says that a region is not needed any more. It may stay registered for the
// next who needs it.
func (c *Carrier) Release(r *Region) {
	if r.copied != nil {
		r.copied.giveBack()
		c.copies--
	} else if err := c.cache.Release(r.entry); err != nil {
		c.fault(fmt.Errorf("deregister: %w", err))
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
