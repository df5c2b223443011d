// Package providertest has the rig of the providers' tests: [End], a queue pair with the
// objects that it needs, [Cable], two ports in a simulated world, and programs that exchange
// messages ([Echo]). Its own tests are those that all providers must pass; what only one
// provider does is tested in the provider's package.
//
// Only tests import it.
package providertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// ConnParam are the parameters of connections.
var ConnParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// CM returns the connection manager of a device.
func CM(t testing.TB, dev verbs.Context) verbs.CM {
	t.Helper()
	return must.Get(dev.CM())(t)
}

// Listen listens for connections at an address.
func Listen(t testing.TB, dev verbs.Context, at netip.AddrPort, backlog int) verbs.Listener {
	t.Helper()
	return must.Get(CM(t, dev).Listen(at, verbs.PortSpaceTCP, backlog))(t)
}

// Accept creates an RC queue pair with its PD, CQ and memory, listens at an address and accepts one
// connection. It calls listening when a peer may connect.
func Accept(t testing.TB, dev verbs.Context, at netip.AddrPort, listening func()) (*End, verbs.Conn) {
	t.Helper()
	e := NewEnd(t, dev, verbs.QPTypeRC)
	l := Listen(t, dev, at, 0) // 0: the default backlog
	listening()
	return e, e.AcceptFrom(l, ConnParam)
}

// AcceptFrom accepts the next connection request of a listener with the end's queue pair.
func (e *End) AcceptFrom(l verbs.Listener, param verbs.ConnParam) verbs.Conn {
	e.Helper()
	req := must.Get(l.GetRequest(verbs.Forever))(e)
	return must.Get(req.Accept(e.QP, param, verbs.Forever))(e)
}

// Connect creates an RC queue pair with its PD, CQ and memory, and connects it to a listener.
func Connect(t testing.TB, dev verbs.Context, to netip.AddrPort) (*End, verbs.Conn) {
	t.Helper()
	e := NewEnd(t, dev, verbs.QPTypeRC)
	return e, must.Get(e.TryConnect(to))(t)
}

// TryConnect connects the end to a listener, and returns the error if that fails.
func (e *End) TryConnect(to netip.AddrPort) (verbs.Conn, error) {
	e.Helper()
	return CM(e, e.Dev).Connect(e.QP, to, ConnParam, verbs.Forever)
}

// JoinRC moves two RC queue pairs to RTS, connected to each other, without the connection manager.
// The first PSNs are 0, and requests are retried for 4 s.
func JoinRC(a, b *End) {
	a.Helper()
	const access = FullAccess &^ verbs.AccessMWBind // which is a right of memory, not of queue pairs
	for _, ends := range []struct{ local, remote *End }{{a, b}, {b, a}} {
		gid := must.Get(ends.remote.Dev.QueryGID(1, 0))(a)
		port := must.Get(ends.local.Dev.QueryPort(1))(a)
		attr := verbs.QPAttr{
			Port: 1, Access: access, PathMTU: port.ActiveMTU, DestQPN: ends.remote.QP.QPN(),
			AH:              verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid.GID, HopLimit: 64}},
			MaxDestRdAtomic: 16, MaxRdAtomic: 16, MinRNRTimer: 1, Timeout: 17, RetryCnt: 7, RNRRetry: 7,
		}
		for _, step := range []struct {
			state verbs.QPState
			mask  verbs.QPAttrMask
		}{
			{verbs.QPStateInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
			{verbs.QPStateRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
			{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
		} {
			attr.State = step.state
			must.Do(a, ends.local.QP.Modify(attr, step.mask|verbs.QPAttrState))
		}
	}
}

// AddrA and AddrB are the addresses of the two ports of a cable.
var (
	AddrA = netip.MustParseAddr("fd00::1")
	AddrB = netip.MustParseAddr("fd00::2")
)

// Cable describes two ports in a simulated world. The zero value is a cable without
// impairments between AddrA and AddrB.
type Cable struct {
	Seed      uint64
	MaxEvents uint64
	Net       sim.NetConfig
	Link      sim.LinkConfig // zero: 100 Gb/s, 1 µs, MTU 4200
	Up        impair.Config  // of both directions
	Addrs     [2]netip.Addr
}

// Open creates a simulated world with two ports that the cable connects. Both ports impair the
// packets that they send as c.Up says, and the world ends after 5 minutes of virtual time.
func (c Cable) Open(t testing.TB) (*sim.World, [2]*sim.Port) {
	t.Helper()
	// Defaults of zero fields.
	if c.Link == (sim.LinkConfig{}) {
		c.Link = sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200}
	}
	if !c.Addrs[0].IsValid() {
		c.Addrs = [2]netip.Addr{AddrA, AddrB}
	}
	w := sim.New(sim.Config{Seed: c.Seed, MaxTime: mono.Time(5 * time.Minute), MaxEvents: c.MaxEvents})
	port := func(i int) sim.PortConfig {
		return sim.PortConfig{Addrs: c.Addrs[i : i+1], Up: c.Up, Link: c.Link}
	}
	a, b, err := sim.NewPair(w, c.Net, port(0), port(1))
	must.Do(t, err)
	return w, [2]*sim.Port{a, b}
}

// ExpectSameCapture checks that capture writes the same file for the same seed, with any number of
// threads, and another file for another seed. recorded, unless empty, is the SHA-256 of the file of
// seed 3 on all machines. A change of that sum needs an entry in CHANGELOG.md.
func ExpectSameCapture(t *testing.T, recorded string, capture func(seed uint64, file *bytes.Buffer)) {
	t.Helper()
	captureWith := func(seed uint64, procs int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		var file bytes.Buffer
		capture(seed, &file)
		return file.Bytes()
	}
	first := captureWith(3, 1)
	if !bytes.Equal(first, captureWith(3, 1)) || !bytes.Equal(first, captureWith(3, 4)) {
		t.Error("the same seed gave different captures")
	}
	if bytes.Equal(first, captureWith(4, 1)) {
		t.Error("another seed gave the same capture: is anything random?")
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(first)); sum != recorded && recorded != "" {
		t.Errorf("capture of seed 3 has changed: SHA-256 %s, was %s", sum, recorded)
	}
}

// Tshark returns the lines that tshark prints for a capture file with the given arguments. It
// skips the test if tshark is not installed.
func Tshark(t *testing.T, file []byte, args ...string) []string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed (Debian: apt-get install tshark)")
	}
	name := filepath.Join(t.TempDir(), "f.pcapng")
	must.Do(t, os.WriteFile(name, file, 0o600))
	out := must.Get(exec.Command(program, append([]string{"-r", name}, args...)...).Output())(t)
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// Tap is a link that calls Sent for each datagram that the underlying link took.
type Tap struct {
	link.PacketLink
	Sent func(d *link.Datagram)
}

// Send implements link.PacketLink. It calls t.Sent with each datagram that the link has sent.
func (t Tap) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := t.PacketLink.Send(now, ds)
	for i := range n {
		t.Sent(&ds[i])
	}
	return n, err
}
