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

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report/certificate"
)

// guestKinds are the kinds of devices of --guest.
var guestKinds = []string{string(guest.RXE), string(guest.SIW), string(guest.SIWCRC)}

// guestFlagSet are the flags of a guest that is booted to test its device.
type guestFlagSet struct {
	imageFlags
	kind    string // of the device; empty without --guest
	program string // with the agent
	cfg     kernel.Config
	accel   string
	given   []string // flags that were given, without --guest and --kernel
}

// guestMemory is enough for a case that registers 1 GiB and for the agent's copy of it.
const guestMemory = 3072

// guestKernelArgs begin the kernel command line of every guest. Warnings of the kernel are
// printed as evidence. Allocated pages are not cleared, because that would hide stale
// memory that rxe sends.
const guestKernelArgs = "loglevel=5 init_on_alloc=0"

// guestMTU is enough for packets with 4096 bytes of data.
const guestMTU = 9000

func (g *guestFlagSet) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.kind, "guest", "", "judge a Linux kernel's own device, in a virtual machine booted for it: `KIND` rxe, siw or siw-crc")
	g.imageFlags.flags(cmd)
	f.StringVar(&g.program, "agent-program", "", "`FILE` with a fabrictest that was built with -tags ibverbs, for the guest (default: this one)")
	f.IntVar(&g.cfg.MTU, "mtu", guestMTU, "largest IP packet on the guest's wire")
	f.IntVar(&g.cfg.Memory, "memory", guestMemory, "MiB of the guest, of which it uses what it touches")
	f.IntVar(&g.cfg.CPUs, "cpus", 1, "processors of the guest")
	f.StringVar(&g.cfg.KernelArgs, "append", "", "`WORDS` for the guest's kernel's command line")
	f.StringVar(&g.accel, "accel", "auto", "how the guest's processors are made: kvm, tcg (emulated), or auto: kvm where it works")
	f.BoolVar(&g.cfg.ICount, "count-instructions", false, "have time pass in the guest by a nanosecond an instruction, however slow this machine is")
	_ = cmd.RegisterFlagCompletionFunc("guest", fixed(guestKinds...))
	_ = cmd.RegisterFlagCompletionFunc("accel", fixed("auto", "kvm", "tcg"))
}

// guestFlagNames are the flags of a guest besides --guest and --kernel.
var guestFlagNames = []string{"agent-program", "mtu", "memory", "cpus", "append", "accel", "count-instructions", "cache", "debs", "mirror"}

// check returns an error for flags that are wrong or contradict each other.
func (g *guestFlagSet) check(cmd *cobra.Command) error {
	others := []string{"agent", "key", "device", "interface", "peer"}
	if g.kind == "" {
		others = append([]string{"kernel"}, guestFlagNames...)
	}
	for _, name := range others {
		switch {
		case !cmd.Flags().Changed(name):
		case g.kind == "":
			return cmdline.Errorf("--%s is about a guest: name the device that it is to have, as in --guest rxe", name)
		default:
			return cmdline.Errorf("--%s is about a device that is there already, and --guest boots one that needs nothing else", name)
		}
	}
	if g.kind == "" {
		return nil
	}
	if !slices.Contains(guestKinds, g.kind) {
		return cmdline.Errorf("--guest %s: a kernel has %s", g.kind, cmdline.Choices(guestKinds))
	}
	if g.cfg.Accel = kernel.Accel(g.accel); g.accel == "auto" {
		g.cfg.Accel = kernel.Auto
	}
	g.cfg.Guests, g.cfg.Devices = 1, []guest.Device{guest.Device(g.kind)}
	g.given = givenFlags(cmd, guestFlagNames)
	return runner.CheckAgentProgram(g.program)
}

// givenFlags returns the named flags that were given, as words of a command line.
func givenFlags(cmd *cobra.Command, names []string) (words []string) {
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
				words = append(words, "--"+name+"="+v)
			} else {
				words = append(words, "--"+name+" "+cmdline.Quote(v))
			}
		}
	}
	return words
}

// goRunIbverbs runs the program in a checkout, with libibverbs.
const goRunIbverbs = "go run -tags " + runner.IbverbsTag + " ./cmd/fabrictest"

// config finds or builds the image, and returns the configuration of the guest.
func (g *guestFlagSet) config(cmd *cobra.Command) (kernel.Config, error) {
	if err := g.prepare(cmd); err != nil {
		return kernel.Config{}, err
	}
	if err := kernel.Check(); err != nil {
		return kernel.Config{}, err
	}
	cfg := g.cfg
	cfg.Program = g.program
	cfg.KernelArgs = strings.TrimSpace(guestKernelArgs + " " + cfg.KernelArgs)
	var err error
	if cfg.Image, err = g.cache.Ensure(cmd.Context(), kernel.Series(g.series), guest.NeedsSIW(cfg.Devices)); err != nil {
		return cfg, err
	}
	if err := cfg.Check(); err != nil {
		return cfg, cmdline.Errorf("--guest %s: %w", g.kind, err)
	}
	return cfg, nil
}

// calledAs returns how to call a program that can be the agent in the guest.
func (g *guestFlagSet) calledAs(program string) string {
	if program == cmdline.GoRun && g.kind != "" && g.program == "" {
		return goRunIbverbs
	}
	return program
}

// words returns the flags of a command line with the same guest.
func (g *guestFlagSet) words() []string {
	return append([]string{"--guest " + g.kind, "--kernel " + g.series}, g.given...)
}

// runGuest boots a guest, judges its device, and switches it off. It does so in a process
// in new namespaces, which ends with this one.
func (o *certifyOptions) runGuest(cmd *cobra.Command, seed uint64) error {
	o.device = o.guest.cfg.Devices[0].Name()
	c, err := runner.NewCertification(o.options(cmd, seed), runner.GuestProtocol(o.guest.cfg))
	if err != nil {
		return err
	}
	cfg, err := o.guest.config(cmd) // here, because the new namespaces have no network to fetch packages from
	if err != nil {
		return err
	}
	inside, err := kernel.IsEmptyNamespace()
	switch {
	case err != nil:
		return err
	case inside:
		run, err := c.JudgeGuest(cmd.Context(), cfg, cmd.ErrOrStderr())
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
	if _, none := os.Stat(filepath.Join(o.out, certificate.File)); none != nil {
		return err
	}
	return cmp.Or(o.signIn(cmd, o.out), err)
}

// checkOut returns an error if the folder cannot be made, before a guest is booted.
func (o *certifyOptions) checkOut() error {
	_, before := os.Stat(o.out)
	if _, err := conformRuns.NewFolder(o.out, time.Now()); err != nil {
		return err
	}
	if errors.Is(before, os.ErrNotExist) {
		return os.Remove(o.out)
	}
	return nil
}
