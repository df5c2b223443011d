package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/verbs"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// agentOptions are those of `fabrictest agent`.
type agentOptions struct {
	listen  string
	key     string
	devices []string
	emulate string
	intf    string
	quiet   bool // do not log clients
}

// newAgentCommand returns the command 'fabrictest agent'.
func newAgentCommand(program string) *cobra.Command {
	o := new(agentOptions)
	cmd := &cobra.Command{
		Use:   "agent --listen ADDR:PORT --key FILE",
		Short: "Give 'fabrictest certify' on another host access to the RDMA devices of this one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd, program) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "`ADDR:PORT` to listen at: one of this host's addresses, or 0.0.0.0 or [::] for all of them")
	f.StringVar(&o.key, "key", "", "`FILE` with the key that clients must have")
	f.StringSliceVar(&o.devices, "device", nil, "only this device, by `NAME`; may be repeated (default: all)")
	f.StringVar(&o.emulate, "emulate", "", "serve an emulated device of the provider `NAME` instead of the kernel's: "+cli.Choices(emulateChoices()))
	f.StringVar(&o.intf, "interface", "", "the network interface `NAME` of the emulated device")
	f.BoolVar(&o.quiet, "quiet", false, "do not log the connections of clients")
	_ = cmd.RegisterFlagCompletionFunc("emulate", fixed(emulateChoices()...))
	cmd.AddCommand(newAgentKeyCommand())
	return cmd
}

// newAgentKeyCommand returns the command 'fabrictest agent key'.
func newAgentKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Create a key for an agent and its clients",
		Args:  cobra.MatchAll(atLeast(1, "name the file for the key"), cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := agent.NewKey().WriteFile(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has a new key. Both hosts need it, and nobody else may have it.\n", args[0])
			return err
		},
	}
}

// run serves the devices to clients until the context is cancelled.
func (o *agentOptions) run(cmd *cobra.Command, program string) error {
	if err := o.check(); err != nil {
		return err
	}
	key, err := agent.ReadKey(o.key)
	if err != nil {
		return fmt.Errorf("%w; '%s agent key FILE' makes a new one", err, program)
	}
	h, err := o.host()
	if err != nil {
		return err
	}
	defer h.Close()
	shown := agent.SomeDevices(h, o.devices)
	id, err := shown.Identity()
	if err != nil {
		return err
	}
	if len(id.Devices) == 0 {
		return errors.New("this host has no such RDMA device: 'ibv_devices' lists what there is; soft-RoCE makes one: modprobe rdma_rxe, rdma link add rxe0 type rxe netdev eth0")
	}
	ln, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	names := make([]string, 0, len(id.Devices))
	for _, d := range id.Devices {
		names = append(names, d.Info.Name)
	}
	peer := " --peer ADDR/LEN" // iWARP uses the addresses of the kernel
	if id.Devices[0].Info.Transport == verbs.TransportIWARP {
		peer = ""
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Serving %s at %v. On the other host, with a copy of the key:\n  %s certify --agent %v --key FILE --device %s --interface IF%s --out FOLDER\n",
		strings.Join(names, ", "), ln.Addr(), program, ln.Addr(), names[0], peer)
	s := &agent.Server{Key: key, Host: shown, Program: "fabrictest " + report.ToolVersion()}
	if free, err := bench.AvailableMemory(); err == nil {
		// A client gets ENOMEM before the agent is killed for lack of memory: each registered byte
		// takes two, so that at most 4/5 are used.
		s.MaxMemory = free * 2 / 5
	}
	if !o.quiet {
		s.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	err = s.Serve(cmd.Context(), ln)
	if errors.As(context.Cause(cmd.Context()), new(interruptedError)) {
		return nil // an agent runs until it is interrupted
	}
	return err
}

// check returns an error for flags that are wrong or contradict each other.
func (o *agentOptions) check() error {
	at, _, err := net.SplitHostPort(o.listen)
	switch {
	case o.listen == "":
		return cli.Errorf("--listen: name the address and port at which to wait for clients, as in --listen 192.0.2.7:7471")
	case err != nil:
		return cli.Errorf("--listen %s: %w", o.listen, err)
	case at == "":
		return cli.Errorf("--listen %s: it names no address; 0.0.0.0 or [::] is all of this host's", o.listen)
	case o.key == "":
		return cli.Errorf("--key: name the file with the key; 'agent key FILE' makes one")
	case o.emulate != "" && !slices.Contains(emulateChoices(), o.emulate):
		return cli.Errorf("--emulate %s: give %s", o.emulate, cli.Choices(emulateChoices()))
	case (o.emulate == "") != (o.intf == ""):
		return cli.Errorf("--emulate and --interface go together: give both, or neither")
	case o.emulate == "" && !ibv.Linked:
		return cli.Errorf("this program was built without libibverbs, and has no devices but emulated ones (--emulate). On Linux: apt install libibverbs-dev librdmacm-dev, then build it with go build -tags ibverbs ./cmd/fabrictest")
	}
	return nil
}

// emulateChoices returns the providers of --emulate.
func emulateChoices() []string { return nics.NamesWith(nics.HasKernelDriver) }

// closableHost is a host of an agent with a Close method.
type closableHost interface {
	agent.Host
	Close()
}

// host opens the emulated device of --emulate, or the devices of the kernel.
func (o *agentOptions) host() (closableHost, error) {
	if o.emulate != "" {
		return bench.NewEmulatedHost(o.emulate, o.intf)
	}
	return bench.NewLocalHost(ibv.Provider{}, bench.LocalHostOptions{Program: "fabrictest " + report.ToolVersion()})
}
