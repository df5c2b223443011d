package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// defaultMTU carries the largest packets of a path MTU of 4096, as the jumbo frames
// of most fabrics do.
const defaultMTU = 9000

// What a device takes its cable for, from which its control of congestion begins. On
// sockets that is less than the device sends by itself: who is told to slow down then
// has to, however seldom a busy machine lets the device look.
const (
	simRateBps    = 100_000_000_000
	socketRateBps = 500_000_000
)

// wish is a job as the hardware of a bench has to be.
type wish struct {
	setup  conformance.Setup
	family int
	mtu    int
	local  []netip.Addr
	peers  []netip.Addr
	device nics.Opener
	// partner opens devices that are made alike, without the defects.
	partner nics.Opener
	claims  nics.Claims
}

// read finds out what a job wants. What the provider's devices cannot be is a
// *conformance.SetupError; a quirk that there is not is the job's fault.
func read(p *nics.Provider, claims nics.Claims, job *conformance.Job) (*wish, error) {
	s := job.Setup
	w := &wish{setup: s, family: cmp.Or(s.Family, 6), mtu: cmp.Or(s.MTU, defaultMTU), claims: claims}
	if w.family != 4 && w.family != 6 {
		return nil, fmt.Errorf("case %s: Setup.Family is %d: IP has 4 and 6", job.Case, s.Family)
	}
	for _, q := range job.Quirks {
		if err := p.CheckQuirk(q); err != nil {
			return nil, err
		}
	}
	n := 1
	if s.TwoAddresses {
		n = 2
	}
	w.local, w.peers = hostAddrs(w.family, firstDevice, n), hostAddrs(w.family, firstPeer, peers)
	made := nics.Setup{Markers: s.Markers, NoCRC: s.NoCRC, Reliable: s.Reliable, Isolate: s.Isolate}
	var err error
	if w.partner, err = p.With(made); err != nil {
		return nil, &conformance.SetupError{Reason: err.Error()}
	}
	made.Quirks, made.ClientServer = job.Quirks, claims.ClientServer
	if w.device, err = p.With(made); err != nil {
		return nil, &conformance.SetupError{Reason: err.Error()}
	}
	return w, nil
}

// caseRand is what a case draws from: the same on every bench.
func caseRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x636f6e666f726d)) }

// tooLong refuses what the cable does not carry.
func (w *wish) tooLong(packet []byte) error {
	if len(packet) > w.mtu {
		return fmt.Errorf("a packet of %d bytes, and the MTU is %d: %w", len(packet), w.mtu, conformance.ErrCannot)
	}
	return nil
}

// partitions are those that devices of RoCE are in: the default one, another as a
// full member, and a third as a limited one.
func partitions() []uint16 { return []uint16{0xffff, 0x8001, 0x0002} }

// place is where the device is, at a cable of that rate.
func (w *wish) place(rateBps uint64) nics.Place {
	p := nics.Place{
		Name: "device", Addr: w.local[0], More: w.local[1:], LineRateBps: rateBps,
		V1: []netip.Addr{hostAddr(w.family, versionOne)}, PKeys: partitions(),
	}
	if len(w.claims.PKeys) > 0 {
		p.PKeys = w.claims.PKeys
	}
	return p
}

// refused says what it means that a device could not be opened: that of a device
// which is set up like no other, most likely that it cannot be.
func (w *wish) refused(err error) error {
	if w.setup == (conformance.Setup{}) {
		return fmt.Errorf("open the device: %w", err)
	}
	return &conformance.SetupError{Reason: err.Error()}
}
