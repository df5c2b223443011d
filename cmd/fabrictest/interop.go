package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/interop"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// newInteropCommand returns the command `fabrictest interop`: emulated devices against those of
// Linux. --provider sets *provider before a subcommand runs.
func newInteropCommand(program string) *cobra.Command {
	name, provider := "", new(nics.Provider)
	known := nics.NamesWith(nics.HasKernelDriver)
	cmd := &cobra.Command{
		Use:   "interop",
		Short: "Test emulated devices against those of Linux",
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(known, name) {
				return cli.Errorf("--provider %s: give %s", name, cli.Choices(known))
			}
			found, err := nics.Find(name)
			if err == nil {
				*provider = *found
			}
			return err
		},
	}
	cmd.PersistentFlags().StringVar(&name, "provider", nics.Default, "`NAME` of the emulated device: "+cli.Choices(known))
	cmd.AddCommand(newInteropMatrixCommand(provider), newInteropVerbsCommand(&interopVerbs{program: program}))
	for _, p := range interopPrograms {
		cmd.AddCommand(p.newCommand(provider))
	}
	return cmd
}

// newInteropMatrixCommand returns the command 'fabrictest interop matrix'.
func newInteropMatrixCommand(provider *nics.Provider) *cobra.Command {
	m := &interop.Matrix{Open: func(s interop.Setup) (verbs.Context, error) { return interop.OpenDevice(provider, s) }}
	list := false
	cmd := &cobra.Command{
		Use:   "matrix [PATTERN]",
		Short: "Run every program, role, address family and size against a lab guest",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern := "*"
			if len(args) > 0 {
				pattern = args[0]
			}
			cases, err := interop.Matching(interop.Cases(provider.Protocol), pattern)
			if err != nil {
				return &cli.Error{Err: err}
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
	f.BoolVar(&list, "list", false, "print the names of the cases and run none")
	addrVar(cmd, &m.Guest.IPv4, "guest4", "10.77.0.11", "the guest's IPv4 address")
	addrVar(cmd, &m.Guest.IPv6, "guest6", "fd77::11", "the guest's IPv6 address")
	f.TextVar(&m.Guest.Control, "control", netip.AddrPortFrom(kernel.ControlAddr(1).Addr(), kernel.GuestPort), "address of the agent in the guest")
	addrVar(cmd, &m.IPv4, "local4", "10.77.0.1", "our IPv4 address")
	addrVar(cmd, &m.IPv6, "local6", "fd77::1", "our IPv6 address")
	f.IntVar(&m.Iters, "iters", 50, "messages each way in a case; a tenth with programs that connect by rdma_cm")
	f.DurationVar(&m.Timeout, "timeout", 30*time.Second, "how long a case may take")
	return cmd
}

// runMatrix runs cases and prints a table of their results.
func runMatrix(ctx context.Context, w io.Writer, m *interop.Matrix, cases []interop.Case) error {
	table := &interop.Table{W: w}
	m.Report = table.Add
	failed, err := m.Run(ctx, cases)
	table.Close()
	if err == nil && failed > 0 {
		return errFailed // the table has the failures
	}
	return err
}

// interopProgram is a command that acts as one end of a program of rdma-core.
type interopProgram struct {
	use, short string
	args       cobra.PositionalArgs
	port       uint16 // of the server
	roceOnly   string // what soft-iWARP lacks to run it; empty if nothing
	// flags adds the program's flags, and returns a function that runs it.
	flags func(f *pflag.FlagSet, e *end) runFunc
}

// runFunc runs a program on a device, after the flags are parsed.
type runFunc func(ctx context.Context, dev verbs.Context, args []string) (interop.Result, error)

var interopPrograms = []interopProgram{
	{
		use: "pingpong rc|uc|ud|srq", short: "Act as one end of an ibv_*_pingpong", args: cobra.ExactArgs(1), port: interop.PingPongPort,
		roceOnly: "queue pair numbers to exchange: it connects by rping, ucmatose or rdma",
		flags: func(f *pflag.FlagSet, e *end) runFunc {
			var p interop.PingPong
			f.IntVarP(&p.Size, "size", "s", 4096, "size of a message; the peer's -s")
			f.IntVarP(&p.Iters, "iters", "n", 1000, "messages in each direction; the peer's -n")
			f.IntVarP(&p.QPs, "num-qp", "q", 16, "queue pairs of srq; the peer's -q")
			mtu := f.IntP("mtu", "m", 1024, "path MTU; the peer's -m")
			f.BoolVarP(&p.Check, "chk", "c", false, "the peer runs with -c")
			return func(ctx context.Context, dev verbs.Context, args []string) (interop.Result, error) {
				p.Tool, p.MTU, p.Events = interop.Tool(args[0]), verbs.MTUFor(*mtu), e.events
				p.Local, p.Role, p.SideChannel = e.local, e.role(), e.addr()
				if p.Tool != interop.SRQ {
					p.QPs = 1
				}
				return p.Run(ctx, dev)
			}
		},
	}, {
		use: "rping", short: "Act as one end of rping, connected by the RDMA connection manager", port: interop.RPingPort,
		flags: func(f *pflag.FlagSet, e *end) runFunc {
			p := interop.CMProgram{Tool: interop.RPing}
			f.IntVarP(&p.Size, "size", "S", 64, "size of a ping; the peer's -S")
			f.IntVarP(&p.Count, "count", "C", 10, "pings of each connection; the peer's -C")
			f.IntVar(&p.Connections, "connections", 1, "simultaneous connections")
			return e.runCM(&p)
		},
	}, {
		use: "udaddy", short: "Act as one end of udaddy, whose peer the RDMA connection manager finds", port: interop.UDAddyPort, roceOnly: "datagrams",
		flags: func(f *pflag.FlagSet, e *end) runFunc {
			p := interop.CMProgram{Tool: interop.UDAddy}
			f.IntVarP(&p.Size, "size", "S", 100, "size of a datagram; the peer's -S")
			f.IntVarP(&p.Count, "count", "C", 10, "datagrams in each direction; the peer's -C")
			return e.runCM(&p)
		},
	}, {
		use: "ucmatose", short: "Act as one end of ucmatose: sends over connections made by the RDMA connection manager", port: interop.UCMatosePort,
		flags: func(f *pflag.FlagSet, e *end) runFunc {
			p := interop.CMProgram{Tool: interop.UCMatose}
			f.IntVarP(&p.Size, "size", "S", 100, "size of a message; the peer's -S")
			f.IntVarP(&p.Count, "count", "C", 10, "messages of a connection in each direction; the peer's -C")
			f.IntVarP(&p.Connections, "connections", "c", 1, "simultaneous connections; the peer's -c")
			f.DurationVar(&p.SendDelay, "pause", 0, "time before the server sends; a client on siw rejects data that arrives too early")
			f.BoolVar(&e.speakFirst, "speak-first", false, "over iWARP, send as the server before the client has, against RFC 5044; a client on siw waits for it")
			return e.runCM(&p)
		},
	}, {
		use: "rdma", short: "Act as rdma_client or rdma_server", port: interop.RDMAPort,
		flags: func(_ *pflag.FlagSet, e *end) runFunc { return e.runCM(&interop.CMProgram{Tool: interop.RDMA}) },
	},
}

// newCommand returns the command that acts as one end of the program, on a device of provider.
// p.flags adds the program's flags and returns the function that runs it. p.roceOnly names what an
// iWARP device lacks for it.
func (p *interopProgram) newCommand(provider *nics.Provider) *cobra.Command {
	e := new(end)
	var run runFunc
	cmd := &cobra.Command{
		Use: p.use, Short: p.short, Args: p.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.roceOnly != "" && provider.Protocol != conformance.RoCE {
				return cli.Errorf("%s has no %s", provider.Name, p.roceOnly)
			}
			return e.run(cmd, provider, func(ctx context.Context, dev verbs.Context) (interop.Result, error) { return run(ctx, dev, args) })
		},
	}
	if p.args == nil {
		cmd.Args = cobra.NoArgs
	}
	e.flags(cmd, p.port)
	run = p.flags(cmd.Flags(), e)
	return cmd
}

// end has the flags of all programs.
type end struct {
	local, connect          netip.Addr
	port                    uint16
	events, crc, speakFirst bool
	timeout                 time.Duration
}

// flags adds the flags. port is the default port of the server.
func (e *end) flags(cmd *cobra.Command, port uint16) {
	addrVar(cmd, &e.local, "local", "", "address of the emulated device")
	addrVar(cmd, &e.connect, "connect", "", "server to connect to; without it this end is the server")
	f := cmd.Flags()
	f.Uint16VarP(&e.port, "port", "p", port, "port of the server")
	f.BoolVarP(&e.events, "events", "e", false, "wait for completion events instead of polling")
	f.BoolVar(&e.crc, "crc", false, "over iWARP, request the MPA CRC")
	f.DurationVar(&e.timeout, "timeout", time.Minute, "time until the program counts as hung")
	if err := cmd.MarkFlagRequired("local"); err != nil {
		panic(err) // there is no such flag
	}
}

// role returns the role of this end: a client if there is an address to connect to.
func (e *end) role() interop.Role {
	if e.connect.IsValid() {
		return interop.Client
	}
	return interop.Server
}

// addr returns the address of the server, which may be this end.
func (e *end) addr() netip.AddrPort {
	if e.connect.IsValid() {
		return netip.AddrPortFrom(e.connect, e.port)
	}
	return netip.AddrPortFrom(e.local, e.port)
}

// runCM returns a function that runs p with the role, address and events that the flags in e say.
func (e *end) runCM(p *interop.CMProgram) runFunc {
	return func(ctx context.Context, dev verbs.Context, _ []string) (interop.Result, error) {
		p.Role, p.Addr, p.Local, p.Events = e.role(), e.addr(), e.local, e.events
		return p.Run(ctx, dev)
	}
}

// run opens a device with the settings of the flags, runs a program on it, and prints the result.
func (e *end) run(cmd *cobra.Command, provider *nics.Provider, program func(context.Context, verbs.Context) (interop.Result, error)) (err error) {
	dev, err := interop.OpenDevice(provider, interop.Setup{Local: e.local, CRC: e.crc, SpeakFirst: e.speakFirst})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), e.timeout, fmt.Errorf("the program did not end within %v (--timeout)", e.timeout))
	defer cancel()
	result, err := program(ctx, dev)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d sent, %d received, all data right, %v\n", result.Sent, result.Received, result.Elapsed.Round(time.Microsecond))
	return err
}

// addrVar adds a flag that is an IP address.
func addrVar(cmd *cobra.Command, p *netip.Addr, name, value, usage string) {
	def, _ := netip.ParseAddr(value) // the zero address if empty
	cmd.Flags().TextVar(p, name, def, usage)
}
