// Package interop tests the emulated NICs against soft-RoCE (rxe) and soft-iWARP (siw) of a
// Linux kernel in a guest of lab/kernel. cmd/fabrictest calls it.
//
//   - [Options] boots a guest, opens devices on both ends and runs the cases of package
//     conformance/interop between them.
//   - [Matrix] runs programs of rdma-core in a guest, in both roles, over both address
//     families and at many sizes: ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong,
//     ibv_srq_pingpong and udaddy over RoCE; rping, ucmatose, rdma_client and rdma_server
//     over both. The peer of each program uses verbs.Context and verbs.CM alone and checks
//     every byte that it receives. The script run boots the guest for it.
//
// The package measures nothing, since an emulated guest is slow, and it does not check
// conformance: a kernel that completes these programs may still break the rules.
//
// A [PingPong] or [CMProgram] may run more than once: Run closes everything that it opens.
package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// Options are the exchanges to run, and with which guest.
type Options struct {
	Guest       kernel.Config // with one device; Impair and Seed are of its link
	Patterns    []string      // of exchanges
	Connections int           // to make and close after the exchanges
	Timeout     time.Duration // of a completion or a connection; 0 for 30 s, or 2 min on an impaired link
	File        string        // for the results in JSON; empty for none
	Out, Status io.Writer
	// Command returns the command line that runs an exchange alone.
	Command func(exchange string) string
}

// noExchanges is the pattern that selects no exchange, for connections only.
const noExchanges = "none"

// OpenDevice opens an emulated device on sockets, with the options for communication with a Linux
// kernel driver (p.Kernel) and the settings of s.
func OpenDevice(p *nics.Provider, s Setup) (verbs.Context, error) {
	setup := nics.Setup{Options: maps.Clone(p.Kernel.Options)}
	if p.Protocol == conformance.IWARP {
		setup.Options[p.CRCOption] = s.CRC
		if s.SpeakFirst {
			// The defect of a responder that sends before the peer's first frame.
			setup.Defects = []string{"NoFence"}
		}
	}
	o, err := p.NewOpener(setup)
	if err != nil {
		return nil, err
	}
	return o.OnSockets(nics.NICConfig{Addr: s.Local})
}

// transport returns the transport of the guest's device.
func (o *Options) transport() verbs.Transport {
	if o.Guest.Devices[0] == kernel.RXE {
		return verbs.TransportIB
	}
	return verbs.TransportIWARP
}

// iwarpHeaders is the size of the headers of IPv4, TCP with a timestamp, MPA and tagged DDP.
const iwarpHeaders = 72

// Cases returns the exchanges (of one operation each, with the guest) that match one of o.Patterns;
// none for the pattern noExchanges. Their sizes depend on rocePayload, the bytes of payload in a
// full RoCE packet, usually 4096.
func (o *Options) Cases(rocePayload int) (cases []interop.Case, err error) {
	if slices.Equal(o.Patterns, []string{noExchanges}) {
		return nil, nil
	}
	payload := rocePayload // of a full packet
	if o.transport() == verbs.TransportIWARP {
		payload = o.Guest.MTU - iwarpHeaders
	}
	all := interop.Cases(o.transport(), payload)
	wanted := make(map[interop.Case]bool)
	for _, pattern := range o.Patterns {
		some, err := interop.Matching(all, pattern)
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			wanted[c] = true
		}
	}
	return slices.DeleteFunc(all, func(c interop.Case) bool { return !wanted[c] }), nil
}

// Run boots the guest in the current network namespace, which must be empty, exchanges every
// selected operation with it, and makes o.Connections connections. It prints the results, and
// writes them to o.File if set. ok means that all passed or failed by a known defect of the kernel.
func (o *Options) Run(ctx context.Context) (ok bool, err error) {
	cfg := o.Guest
	lab, err := kernel.UpInCurrentNamespace(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	g := kernel.NewAgentHost(lab)
	client, err := g.Start(ctx)
	if err != nil {
		return false, err
	}
	defer g.Stop()
	defer client.Close()
	name := cfg.Devices[0].Name()
	theirs, err := client.Open(name)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", name, err)
	}
	defer theirs.Close()
	ours, err := o.ours()
	defer func() { // also after an error, which may leave one device open
		for _, dev := range ours.Devices {
			dev.Close()
		}
	}()
	if err != nil {
		return false, err
	}
	at, lossy, timeout := lab.Guests()[0], !cfg.Impair.Empty(), cmp.Or(o.Timeout, 30*time.Second)
	if lossy && o.Timeout == 0 {
		timeout = 2 * time.Minute // the connection manager retransmits late
	}
	s := &interop.Suite{
		Ours: ours,
		Theirs: &interop.End{
			Name:    fmt.Sprintf("%s of Linux %s", cfg.Devices[0], cfg.Image.Release),
			Devices: map[interop.Family]verbs.Context{interop.IPv4: theirs, interop.IPv6: theirs},
			Addrs:   map[interop.Family]netip.Addr{interop.IPv4: at.IPv4, interop.IPv6: at.IPv6},
			Lacks:   kernelLacks(o.transport()),
			Objects: func(ctx context.Context) (map[string]int, error) {
				out, code, err := lab.Output(ctx, 1, kernel.Command{Args: []string{"rdma", "resource", "show", name}})
				if err != nil || code != 0 {
					return nil, fmt.Errorf("rdma resource show %s: code %d, %w: %s", name, code, err, out)
				}
				return parseResources(out)
			},
		},
		Lossy: lossy, Timeout: timeout, Exceptions: kernelExceptions(string(cfg.Devices[0]), lossy),
	}
	r := newReport(s, o)
	s.OnResult = r.add
	payload, err := s.PacketPayload()
	if err != nil {
		return false, err
	}
	cases, err := o.Cases(payload)
	if err != nil {
		return false, err
	}
	_, err = s.Run(ctx, cases)
	r.endExchanges()
	if err != nil {
		if text, _, consoleErr := lab.ConsoleSince(1, 0); consoleErr == nil { // all output of guest 1
			fmt.Fprintf(o.Status, "The guest printed:\n%s\n", text)
		}
	}
	if err == nil && o.Connections > 0 {
		r.Connections, err = s.RunConnections(ctx, o.Connections, func(done int) {
			if done%100 == 0 {
				fmt.Fprintf(o.Status, "%d connections …\n", done)
			}
		})
		r.printConnections()
	}
	r.Link = lab.Status()[0].Link
	r.printLink()
	if err == nil && o.File != "" {
		err = r.write(o.File)
	}
	return r.ok(), err
}

// ours opens the emulated devices, one at each address of the host, and returns them as one end of
// the test. The caller closes them; after an error, too, the result may have one.
func (o *Options) ours() (*interop.End, error) {
	protocol := conformance.RoCE
	if o.transport() == verbs.TransportIWARP {
		protocol = conformance.IWARP
	}
	provider := nics.OfProtocol(protocol)
	e := &interop.End{
		Name: provider.Name, Devices: make(map[interop.Family]verbs.Context),
		Addrs: map[interop.Family]netip.Addr{interop.IPv4: kernel.HostIPv4, interop.IPv6: kernel.HostIPv6},
		// Connections and queues that leak keep descriptors and goroutines.
		Objects: func(context.Context) (map[string]int, error) {
			files, err := os.ReadDir("/proc/self/fd")
			return map[string]int{"descriptors": len(files), "goroutines": runtime.NumGoroutine()}, err
		},
	}
	for family, addr := range e.Addrs {
		dev, err := OpenDevice(provider, Setup{Local: addr, CRC: o.Guest.Devices[0] == kernel.SIWCRC})
		if err != nil {
			return e, fmt.Errorf("%s at %v: %w", provider.Name, addr, err)
		}
		e.Devices[family] = dev
	}
	return e, nil
}
