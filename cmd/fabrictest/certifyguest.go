package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report/certificate"
)

// guestKinds are the kinds of devices of --guest.
var guestKinds = []string{string(kernel.RXE), string(kernel.SIW), string(kernel.SIWCRC)}

// deviceGuestFlags are the flags of a guest that is booted to test its device.
type deviceGuestFlags struct {
	guestFlags
	kind    string   // of the device; empty without --guest
	program string   // with the agent
	given   []string // flags that were given, as shell text, without --guest and --kernel
}

// guestMemory is enough for a case that registers 1 GiB and for the agent's copy of it.
const guestMemory = 3072

// guestKernelArgs begin the kernel command line of every guest. Kernel warnings are printed as
// evidence. Allocated pages are not cleared, because that would hide stale memory that rxe sends.
const guestKernelArgs = "loglevel=5 init_on_alloc=0"

// guestMTU is enough for packets with 4096 bytes of data.
const guestMTU = 9000

// flags adds the flags to a command.
func (g *deviceGuestFlags) flags(cmd *cobra.Command) {
	g.guestFlags.flags(cmd, guestMTU, guestMemory)
	choiceFlag(cmd, &g.kind, "guest", "", "test the software RDMA device of a Linux kernel, in a virtual machine that is booted for it: `KIND` rxe, siw or siw-crc", guestKinds...)
	cmd.Flags().StringVar(&g.program, "agent-program", "", "`FILE` with a fabrictest that was built with -tags ibverbs, for the guest (default: this one)")
}

// guestFlagNames are the flags of a guest besides --guest and --kernel.
var guestFlagNames = []string{"agent-program", "mtu", "memory", "cpus", "append", "accel", "count-instructions", "cache", "debs", "mirror"}

// check returns an error for invalid or contradictory flags, and sets the device of the guest.
func (g *deviceGuestFlags) check(cmd *cobra.Command) error {
	excluded := []string{"agent", "key", "device", "interface", "peer"}
	if g.kind == "" {
		excluded = append([]string{"kernel"}, guestFlagNames...)
	}
	for _, name := range excluded {
		switch {
		case !cmd.Flags().Changed(name):
		case g.kind == "":
			return cli.Errorf("--%s is about a guest: name the device that it is to have, as in --guest rxe", name)
		default:
			return cli.Errorf("--%s is about a device that is there already: leave it out, because --guest boots a virtual machine with a device of its own", name)
		}
	}
	if g.kind == "" {
		return nil
	}
	if !slices.Contains(guestKinds, g.kind) {
		return cli.Errorf("--guest %s: give %s", g.kind, cli.Choices(guestKinds))
	}
	g.cfg.Guests, g.cfg.Devices = 1, []kernel.Device{kernel.Device(g.kind)}
	g.given = givenFlags(cmd, guestFlagNames)
	return runner.CheckAgentProgram(g.program)
}

// givenFlags returns those of the named flags that were given, as shell text such as "--mtu 1500".
func givenFlags(cmd *cobra.Command, names []string) (flags []string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Value.Type() == "bool" {
				flags = append(flags, "--"+name+"="+v)
			} else {
				flags = append(flags, "--"+name+" "+cli.Quote(v))
			}
		}
	}
	return flags
}

// goRunIbverbs runs the program in a checkout, with libibverbs.
const goRunIbverbs = "go run -tags " + runner.IbverbsTag + " ./cmd/fabrictest"

// config finds or builds the image, and returns the configuration of the guest.
func (g *deviceGuestFlags) config(cmd *cobra.Command) (kernel.Config, error) {
	cfg, err := g.guestFlags.config(cmd, g.cfg.Devices)
	if err != nil {
		return cfg, err
	}
	cfg.Program = g.program
	cfg.KernelArgs = strings.TrimSpace(guestKernelArgs + " " + cfg.KernelArgs)
	if err := cfg.Check(); err != nil {
		return cfg, cli.Errorf("--guest %s: %w", g.kind, err)
	}
	return cfg, nil
}

// calledAs returns the command that starts this program, given how it was started. If this program
// is also the agent in the guest, 'go run' needs the build tag ibverbs.
func (g *deviceGuestFlags) calledAs(program string) string {
	if program == cli.GoRun && g.kind != "" && g.program == "" {
		return goRunIbverbs
	}
	return program
}

// shellFlags returns the flags that boot the same guest, as shell text.
func (g *deviceGuestFlags) shellFlags() []string {
	return append([]string{"--guest " + g.kind, "--kernel " + g.series}, g.given...)
}

// runGuest boots a guest, tests its device, and switches the guest off. To do so, it runs this
// command again in new namespaces, in a process that ends with this one; there, inside is true.
func (o *certifyOptions) runGuest(cmd *cobra.Command, seed uint64) error {
	o.device = o.guest.cfg.Devices[0].Name()
	c, err := runner.NewCertification(o.options(cmd, seed), runner.GuestProtocol(o.guest.cfg))
	if err != nil {
		return err
	}
	cfg, err := o.guest.config(cmd) // outside first: the new namespaces have no network to fetch packages from
	if err != nil {
		return err
	}
	inside, err := kernel.IsEmptyNamespace()
	switch {
	case err != nil:
		return err
	case inside:
		run, err := c.TestGuest(cmd.Context(), cfg, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return o.finish(cmd, c, run)
	}
	if err := o.checkOut(); err != nil {
		return err
	}
	// The outer process signs, because ssh-keygen may ask for a passphrase.
	err = runUnshared(cmd, append([]string{"--sign="}, o.IDs...), o.out)
	if _, statErr := os.Stat(filepath.Join(o.out, certificate.File)); statErr != nil {
		return err // there is no certificate to sign
	}
	return cmp.Or(o.signIn(cmd, o.out), err)
}

// checkOut returns an error if the folder of the results cannot be made. It makes the folder to
// find out, and removes it again unless it existed.
func (o *certifyOptions) checkOut() error {
	_, statErr := os.Stat(o.out)
	if _, err := conformRuns.NewFolder(o.out, time.Now()); err != nil {
		return err
	}
	if errors.Is(statErr, os.ErrNotExist) {
		return os.Remove(o.out)
	}
	return nil
}
