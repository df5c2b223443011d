package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/interop"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/verbs"
)

// newInteropCommand is `fabrictest interop`: our devices against a peer that shares
// none of our code.
func newInteropCommand(program string) *cobra.Command {
	provider := interop.SoftRoCE
	cmd := &cobra.Command{
		Use:   "interop",
		Short: "Test soft-RoCE against the kernel's, over UDP sockets",
		Long: `Test soft-RoCE and soft-iWARP against the kernel's, over UDP and TCP sockets.

"interop verbs" boots a guest with the Linux kernel's soft-RoCE or soft-iWARP, and
exchanges with it every operation that both have. lab/interop/run boots one, too,
and runs "interop matrix" on its network: the programs that come with rdma-core in either
role. The other commands are one end of one program, for any peer: the program of that name with the same options, on a machine
with an RDMA device. Over soft-iWARP there are those that connect by rdma_cm: rping,
ucmatose and rdma.`,
	}
	cmd.PersistentFlags().Var(&provider, "provider", "our device: softroce or softiwarp")
	cmd.AddCommand(
		newInteropMatrixCommand(&provider), newInteropVerbsCommand(&interopVerbs{program: program}), newInteropPingPongCommand(&provider), newInteropRPingCommand(&provider),
		newInteropUDAddyCommand(&provider), newInteropUCMatoseCommand(&provider), newInteropRDMACommand(&provider),
	)
	return cmd
}

func newInteropMatrixCommand(provider *interop.Provider) *cobra.Command {
	m := &interop.Matrix{Open: func(s interop.Setup) (verbs.Context, error) { return interop.OpenDevice(*provider, s) }}
	list := false
	cmd := &cobra.Command{
		Use:   "matrix [PATTERN]",
		Short: "Run every program, role, address family and size against a lab guest",
		Long: `Run every program, role, address family and size against a guest of the lab,
and print what came of it. PATTERN selects cases by name, tool/role/family/variant/size,
with * for any part and the rest left out: rc, 'ud/*/ipv6', srq/server/ipv4/events/64.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern := "*"
			if len(args) > 0 {
				pattern = args[0]
			}
			cases, err := interop.Matching(interop.Cases(*provider), pattern)
			if err != nil {
				return &cmdline.Error{Err: err}
			}
			if list {
				for _, c := range cases {
					fmt.Fprintln(cmd.OutOrStdout(), c.Name())
				}
				return nil
			}
			return runMatrix(cmd.Context(), cmd.OutOrStdout(), m, cases)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "print the cases' names and run none")
	addrVar(cmd, &m.Guest.IPv4, "guest4", "10.77.0.11", "the guest's IPv4 address")
	addrVar(cmd, &m.Guest.IPv6, "guest6", "fd77::11", "the guest's IPv6 address")
	f.TextVar(&m.Guest.Control, "control", netip.AddrPortFrom(guest.Control(1).Addr(), guest.Port), "where the guest runs programs for us")
	addrVar(cmd, &m.IPv4, "local4", "10.77.0.1", "our IPv4 address")
	addrVar(cmd, &m.IPv6, "local6", "fd77::1", "our IPv6 address")
	f.IntVar(&m.Iters, "iters", 50, "messages each way in a case; a tenth with programs that connect by rdma_cm")
	f.DurationVar(&m.Timeout, "timeout", 30*time.Second, "how long a case may take")
	return cmd
}

func runMatrix(ctx context.Context, w io.Writer, m *interop.Matrix, cases []interop.Case) error {
	table := &interop.Table{W: w}
	m.Report = table.Add
	failed, err := m.Run(ctx, cases)
	table.Close()
	if err == nil && failed > 0 {
		return errFailed // the table says what
	}
	return err
}

// roceOnly refuses a program that exchanges what only RoCE has.
func roceOnly(provider *interop.Provider, why string) error {
	if *provider == interop.SoftRoCE {
		return nil
	}
	return &cmdline.Error{Err: fmt.Errorf("%s has %s", *provider, why)}
}

func newInteropPingPongCommand(provider *interop.Provider) *cobra.Command {
	p := interop.PingPong{}
	var mtu int
	end := &end{provider: provider}
	cmd := &cobra.Command{
		Use:   "pingpong rc|uc|ud|srq",
		Short: "Act as one end of an ibv_*_pingpong",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := roceOnly(provider, "no queue pair numbers to exchange: it connects by rping, ucmatose or rdma"); err != nil {
				return err
			}
			p.Tool, p.MTU = interop.Tool(args[0]), verbs.MTUFor(mtu)
			p.Local, p.Role, p.SideChannel = end.local, end.role(), end.addr()
			if p.Tool != interop.SRQ {
				p.QPs = 1
			}
			return end.run(cmd, p.Run)
		},
	}
	end.flags(cmd, interop.PingPongPort)
	f := cmd.Flags()
	f.IntVarP(&p.Size, "size", "s", 4096, "size of a message; the peer's -s")
	f.IntVarP(&p.Iters, "iters", "n", 1000, "messages each way; the peer's -n")
	f.IntVarP(&p.QPs, "num-qp", "q", 16, "queue pairs of srq; the peer's -q")
	f.IntVarP(&mtu, "mtu", "m", 1024, "path MTU; the peer's -m")
	f.BoolVarP(&p.Events, "events", "e", false, "sleep on completion events")
	f.BoolVarP(&p.Check, "chk", "c", false, "the peer runs with -c")
	return cmd
}

func newInteropRPingCommand(provider *interop.Provider) *cobra.Command {
	p := interop.Ping{}
	end := &end{provider: provider}
	cmd := &cobra.Command{
		Use:   "rping",
		Short: "Act as one end of rping, connected by the RDMA connection manager",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Role, p.Addr = end.role(), end.addr()
			return end.run(cmd, p.Run)
		},
	}
	end.flags(cmd, interop.PingPort)
	f := cmd.Flags()
	f.IntVarP(&p.Size, "size", "S", 64, "size of a ping; the peer's -S")
	f.IntVarP(&p.Count, "count", "C", 10, "pings a connection; the peer's -C")
	f.IntVar(&p.Connections, "connections", 1, "connections at a time")
	f.BoolVarP(&p.Events, "events", "e", false, "sleep on completion events")
	return cmd
}

func newInteropUDAddyCommand(provider *interop.Provider) *cobra.Command {
	d := interop.Datagrams{}
	end := &end{provider: provider}
	cmd := &cobra.Command{
		Use:   "udaddy",
		Short: "Act as one end of udaddy, whose peer the RDMA connection manager finds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := roceOnly(provider, "no datagrams"); err != nil {
				return err
			}
			d.Role, d.Addr, d.Local = end.role(), end.addr(), end.local
			return end.run(cmd, d.Run)
		},
	}
	end.flags(cmd, interop.DatagramPort)
	f := cmd.Flags()
	f.IntVarP(&d.Size, "size", "S", 100, "size of a datagram; the peer's -S")
	f.IntVarP(&d.Count, "count", "C", 10, "datagrams each way; the peer's -C")
	f.BoolVarP(&d.Events, "events", "e", false, "sleep on completion events")
	return cmd
}

func newInteropUCMatoseCommand(provider *interop.Provider) *cobra.Command {
	v := interop.Volley{}
	end := &end{provider: provider}
	cmd := &cobra.Command{
		Use:   "ucmatose",
		Short: "Act as one end of ucmatose: sends over connections made by the RDMA connection manager",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.Role, v.Addr = end.role(), end.addr()
			return end.run(cmd, v.Run)
		},
	}
	end.flags(cmd, interop.ExchangePort)
	f := cmd.Flags()
	f.IntVarP(&v.Size, "size", "S", 100, "size of a message; the peer's -S")
	f.IntVarP(&v.Count, "count", "C", 10, "messages each way over a connection; the peer's -C")
	f.IntVarP(&v.Connections, "connections", "c", 1, "connections at a time; the peer's -c")
	f.BoolVarP(&v.Events, "events", "e", false, "sleep on completion events")
	f.DurationVar(&v.Pause, "pause", 0, "wait before speaking as the server; a client on siw refuses what comes too soon")
	f.BoolVar(&end.speakFirst, "speak-first", false, "over iWARP, send as the server before the client has, against RFC 5044; a client on siw waits for it")
	return cmd
}

func newInteropRDMACommand(provider *interop.Provider) *cobra.Command {
	x := interop.Exchange{}
	end := &end{provider: provider}
	cmd := &cobra.Command{
		Use:   "rdma",
		Short: "Act as rdma_client or rdma_server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x.Role, x.Addr = end.role(), end.addr()
			return end.run(cmd, x.Run)
		},
	}
	end.flags(cmd, interop.ExchangePort)
	cmd.Flags().BoolVarP(&x.Events, "events", "e", false, "sleep on completion events")
	return cmd
}

// end is what the single programs have in common.
type end struct {
	provider        *interop.Provider
	local, connect  netip.Addr
	port            uint16
	crc, speakFirst bool
	timeout         time.Duration
}

func (e *end) flags(cmd *cobra.Command, port uint16) {
	addrVar(cmd, &e.local, "local", "", "our address on the fabric")
	addrVar(cmd, &e.connect, "connect", "", "the server to connect to; without it we are the server")
	cmd.Flags().Uint16VarP(&e.port, "port", "p", port, "port of the server")
	cmd.Flags().BoolVar(&e.crc, "crc", false, "over iWARP, ask for MPA's CRC")
	cmd.Flags().DurationVar(&e.timeout, "timeout", time.Minute, "how long it may take")
	if err := cmd.MarkFlagRequired("local"); err != nil {
		panic(err) // a flag of another name: a mistake above
	}
}

func (e *end) role() interop.Role {
	if e.connect.IsValid() {
		return interop.Client
	}
	return interop.Server
}

func (e *end) addr() netip.AddrPort {
	if e.connect.IsValid() {
		return netip.AddrPortFrom(e.connect, e.port)
	}
	return netip.AddrPortFrom(e.local, e.port)
}

// run opens a device, runs a program on it, and says how it went.
func (e *end) run(cmd *cobra.Command, program func(context.Context, verbs.Context) (interop.Result, error)) (err error) {
	dev, err := interop.OpenDevice(*e.provider, interop.Setup{Local: e.local, CRC: e.crc, SpeakFirst: e.speakFirst})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
	}()
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), e.timeout, fmt.Errorf("no end after %v", e.timeout))
	defer cancel()
	result, err := program(ctx, dev)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d sent, %d received, all data right, %v\n", result.Sent, result.Received, result.Elapsed.Round(time.Microsecond))
	return nil
}

// addrVar adds a flag that is an IP address.
func addrVar(cmd *cobra.Command, p *netip.Addr, name, value, usage string) {
	def, _ := netip.ParseAddr(value) // none is the zero address
	cmd.Flags().TextVar(p, name, def, usage)
}
