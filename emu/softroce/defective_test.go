package softroce

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// harmless are the defects that two programs which only exchange messages do not
// notice: what they change is sealed again, and the engine goes on.
var harmless = []string{
	"AnswersNoDSCP", "DFUnchecked", "IPUnchecked", "PrimaryAddressUsed", "QPNLoose", "SourcePortPerPacket", "FrameEndICRC", "ICRCUnchecked",
	"BTHUnchecked", "MissingHeadersZero", "ReservedBitsSent", "ReservedBitsChecked", "SolicitedInverted", "UnreliableAckReq", "EarlyAckCounts",
	"ReadNeedsAckReq", "AckOvertakesRead", "CreditsInvented", "RNRTimerIgnored", "AETHInMiddle", "ReadPSNStuck",
	"DupReadDropped", "SubReadWhole", "ReplayKeepsOne", "BadRecvKeyIsAccess", "HugeLengthIsAccess", "AccessNAKsSwapped",
	"ReadTakesOnePSN", "ReservedNAKIsAck", "NAKWaitsForTimer", "ByteOrderWrong", "RETHPerPacket", "XRCETHMisplaced",
	"UCLikeRC", "UDPSNChecked", "UDWaitsForReceive", "MigrationIgnored", "CNPMisaddressed", "CNPReservedUsed", "CNPTakesPSN",
}

// Whatever is wrong with a device, on a link that loses packets besides, it does
// not break down; and most defects do not keep messages from arriving.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	lossy := impair.Config{Specs: []impair.Spec{{LossPPM: 30_000, DuplicatePPM: 20_000, CorruptPPM: 20_000}}}
	for _, q := range rocewire.AllDefects() {
		t.Run(q.Name, func(t *testing.T) {
			var defects rocewire.Defects
			if err := defects.Set(q.Name, true); err != nil {
				t.Fatal(err)
			}
			err := echoWith(t, defects, lossy)
			var broken *sim.PanicError
			if errors.As(err, &broken) {
				t.Fatalf("%v\n%s", broken.Value, broken.Stack)
			}
			if slices.Contains(harmless, q.Name) && err != nil {
				t.Error(err)
			}
		})
	}
}

// echoWith has a defective device and a sound one exchange messages.
func echoWith(t *testing.T, defects rocewire.Defects, spec impair.Config) error {
	w := sim.New(sim.Config{Seed: 3, MaxTime: mono.Time(time.Minute), MaxEvents: 200_000})
	defer w.Close()
	port := func(addr string) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Up: spec, Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, port("fd00::1"), port("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := InWorld(w, pa, pa, Config{Name: "defective", Defects: defects})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb, Config{Name: "sound"})
	if err != nil {
		t.Fatal(err)
	}
	w.Go("server", func(*sim.Proc) error { return echoServer(b, 20, func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond) // until somebody listens
		return echoClient(a, netip.MustParseAddr("fd00::2"), 20)
	})
	return w.RunPrograms()
}
