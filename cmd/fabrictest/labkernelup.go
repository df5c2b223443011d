package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/kernel"
)

// imageFlags say which image guests boot, and where it is kept.
type imageFlags struct {
	series string
	cache  kernel.ImageCache
}

// flags adds the flags to a command.
func (o *imageFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.series, "kernel", string(kernel.Linux612), "`SERIES` of kernels: 6.1 or 6.12")
	f.StringVar(&o.cache.Dir, "cache", "", "`FOLDER` to keep images in (default: fabrictest/kernel in the user's cache)")
	f.StringArrayVar(&o.cache.DebDirs, "debs", nil, "`FOLDER` with packages that were downloaded before; may be repeated")
	f.StringVar(&o.cache.Mirror, "mirror", kernel.DefaultMirror, "`URL` of Debian's packages, if this machine's apt lists do not have them")
	_ = cmd.RegisterFlagCompletionFunc("kernel", fixed(string(kernel.Linux61), string(kernel.Linux612)))
}

// prepare checks the flags, and sets the folder and the log of the image cache.
func (o *imageFlags) prepare(cmd *cobra.Command) (err error) {
	if err := kernel.Series(o.series).Check(); err != nil {
		return cli.Errorf("--kernel: %w", err)
	}
	if o.cache.Dir == "" {
		o.cache.Dir, err = kernel.DefaultImageDir()
	}
	o.cache.Log = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s …\n", what) }
	return err
}

// newLabKernelBuildCommand returns the command 'fabrictest lab kernel build'.
func newLabKernelBuildCommand() *cobra.Command {
	var o imageFlags
	noSIW := false
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the guests' kernel and root file system from Debian packages",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.prepare(cmd); err != nil {
				return err
			}
			img, err := o.cache.Build(cmd.Context(), kernel.Series(o.series), !noSIW)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Linux %s, of Debian's package version %s, made %s\n", img.Release, img.Version, img.Built.Format(time.DateTime))
			fmt.Fprintf(w, "  kernel  %s\n", img.Kernel)
			for _, a := range img.Archives {
				fmt.Fprintf(w, "  files   %s\n", a)
			}
			return nil
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&noSIW, "no-siw", false, "leave out siw, which must be compiled")
	return cmd
}

// guestFlags describe the guests of a lab, or the one that is booted to test its device.
type guestFlags struct {
	imageFlags
	cfg   kernel.Config
	accel string
}

// flags adds the flags, with the defaults of the MTU and of the memory in MiB.
func (o *guestFlags) flags(cmd *cobra.Command, mtu, memory int) {
	o.imageFlags.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.cfg.MTU, "mtu", mtu, "largest IP packet on the link of the guest")
	f.IntVar(&o.cfg.Memory, "memory", memory, "memory of a guest in MiB; the machine provides what the guest touches")
	f.IntVar(&o.cfg.CPUs, "cpus", 1, "processors of a guest")
	f.StringVar(&o.cfg.KernelArgs, "append", "", "`WORDS` for the command line of the guest's kernel")
	choiceFlag(cmd, &o.accel, "accel", "auto", "how processors are virtualized: kvm, tcg (emulated), or auto: kvm where it works", "auto", "kvm", "tcg")
	f.BoolVar(&o.cfg.ICount, "count-instructions", false, "make the guest's clock advance by a nanosecond per instruction, whatever the speed of this machine")
}

// config checks the flags and the machine, finds or builds the image, and returns the
// configuration of guests with these devices.
func (o *guestFlags) config(cmd *cobra.Command, devices []kernel.Device) (cfg kernel.Config, err error) {
	cfg = o.cfg
	cfg.Devices = devices
	cfg.Accel = kernel.Accel(o.accel)
	if o.accel == "auto" {
		cfg.Accel = kernel.Auto
	}
	if err := o.prepare(cmd); err != nil {
		return cfg, err
	}
	if err := kernel.Check(); err != nil {
		return cfg, err
	}
	cfg.Image, err = o.cache.Ensure(cmd.Context(), kernel.Series(o.series), kernel.NeedsSIW(devices))
	return cfg, err
}

// labGuestFlags describe the guests of a lab.
type labGuestFlags struct {
	guestFlags
	devices, impair string
}

// flags adds the flags to a command.
func (o *labGuestFlags) flags(cmd *cobra.Command) {
	const mtu, memoryMiB = 1500, 512
	o.guestFlags.flags(cmd, mtu, memoryMiB)
	f := cmd.Flags()
	f.IntVar(&o.cfg.Guests, "guests", 1, "number of guests")
	choiceFlag(cmd, &o.devices, "devices", "rxe", "RDMA devices of each guest: rxe, siw, siw-crc (siw that requests the MPA CRC), both, none", "rxe", "siw", "siw-crc", "both", "none")
	f.StringVar(&o.impair, "impair", "", "`WORDS` for the impairments of the guests' links from the start, as in 'lab kernel set': 'loss=5% delay=1ms'")
	f.Uint64Var(&o.cfg.Seed, "seed", 1, "seed of random impairments")
	f.DurationVar(&o.cfg.BootTimeout, "boot-timeout", 3*time.Minute, "how long a guest may take to be ready")
}

// config checks the flags and the machine, finds or builds the image, and returns the configuration
// of the guests.
func (o *labGuestFlags) config(cmd *cobra.Command) (cfg kernel.Config, err error) {
	devices, err := kernel.ParseDevices(o.devices)
	if err != nil {
		return cfg, cli.Errorf("--devices: %w", err)
	}
	if devices == nil {
		devices = []kernel.Device{} // none, not the default
	}
	if o.cfg.Impair, err = kernel.ParseImpairFlag(o.impair); err != nil {
		return cfg, err
	}
	return o.guestFlags.config(cmd, devices)
}

// newLabKernelUpCommand returns the command 'fabrictest lab kernel up'.
func newLabKernelUpCommand(program string, lab *string) *cobra.Command {
	var o labGuestFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Boot guests that stay up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := kernel.CheckName(*lab); err != nil {
				return cli.Errorf("--lab: %w", err)
			}
			cfg, err := o.config(cmd)
			if err != nil {
				return err
			}
			if err := kernel.Start(cmd.Context(), *lab, cfg); err != nil {
				return err
			}
			info, err := kernel.Query(cmd.Context(), *lab)
			if err != nil {
				return err
			}
			if err := info.WriteTable(cmd.OutOrStdout()); err != nil {
				return err
			}
			flag := ""
			if *lab != kernel.DefaultName {
				flag = " --lab " + *lab
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "\n  %s lab kernel%s exec 1 -- ibv_devinfo\n  %[1]s lab kernel%[2]s down\n", program, flag)
			return err
		},
	}
	o.flags(cmd)
	return cmd
}

// newLabKernelRunCommand returns the command 'fabrictest lab kernel run'.
func newLabKernelRunCommand() *cobra.Command {
	var o labGuestFlags
	cmd := &cobra.Command{
		Use:   "run -- PROGRAM [ARGUMENT...]",
		Short: "Boot guests, run a program on their network, and stop them",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return cli.Errorf("put the program to run behind --, as in 'fabrictest lab kernel run -- bash'")
			}
			cfg, err := o.config(cmd)
			if err != nil {
				return err
			}
			code, err := kernel.RunProgram(cmd.Context(), cfg, args)
			return programResult(code, err)
		},
	}
	o.flags(cmd)
	return cmd
}

// newLabKernelCheckCommand returns the command 'fabrictest lab kernel check'.
func newLabKernelCheckCommand() *cobra.Command {
	var o imageFlags
	built, noSIW := false, false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Print what this machine lacks to boot guests, and how to get it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.prepare(cmd); err != nil {
				return err
			}
			if err := kernel.Check(); err != nil {
				return err
			}
			if !built {
				return o.cache.Check(kernel.Series(o.series), !noSIW) // for a build
			}
			_, err := o.cache.Find(kernel.Series(o.series), !noSIW)
			return err
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&built, "built", false, "also check that the image has been built")
	cmd.Flags().BoolVar(&noSIW, "no-siw", false, "leave out siw")
	return cmd
}
