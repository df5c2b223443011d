package main

import (
	"errors"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
)

func newExecCommand(calledAs string) *cobra.Command {
	var o fabricFlags
	var once live.Program
	lab := live.DefaultName
	cmd := &cobra.Command{
		Use:   "exec {HOST | -n HOSTS} -- PROGRAM [ARGUMENT...]",
		Short: "Run a program in the hosts of a fabric",
		Long: `Run a program in a host of a fabric that is up, or, with -n, in each host of a
fabric that is brought up for it and taken down when all programs have ended.

A program finds its NIC by its environment: FABRICTEST_HOST is the name of its
host, FABRICTEST_NICS lists its NICs, FABRICTEST_RDMA0_IPV6 and _IPV4 are the
addresses of the first, and FABRICTEST_RDMA0_IPV6_PEERS those of all hosts in
order. Programs over libibverbs find no device there, unless the fabric was brought
up with --rdma. With -n there are FABRICTEST_RANK and FABRICTEST_SIZE too. Go programs
read it with package lab/nics, and speak to each other by package launch.

On a terminal the program gets a terminal of its own, and the processes of its session are
killed when it ends; otherwise signals are passed on to it.

The exit code is the program's; with -n the first that is not 0. A program that a signal
ended counts as 128 plus the number of the signal.`,
		Example: `  fabrictest exec -n 4 -- ./my-program --verbose
  fabrictest exec -n 2 -- sh -c 'echo $FABRICTEST_HOST $FABRICTEST_RDMA0_IPV6'
  fabrictest up --hosts 4
  fabrictest exec host0 -- bash
  fabrictest exec host1 -- ping -c 3 fd00:fab::1`,
		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || dash == len(args) {
				return usagef("put the program to run behind --, as in 'fabrictest exec -n 2 -- ip address'")
			}
			hosts, program := args[:dash], args[dash:]
			if o.given("hosts") || o.like != "" {
				if len(hosts) > 0 {
					return usagef("-n makes a fabric of its own: leave out %s, or -n", hosts[0])
				}
				return execOnce(cmd, calledAs, &o, once, program)
			}
			if len(hosts) != 1 {
				warnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
				return usagef("name one host of the lab, as in 'fabrictest exec host0 -- %[1]s', or give -n for a fabric of its own, as in 'fabrictest exec -n 2 -- %[1]s'", program[0])
			}
			if info, err := live.Query(cmd.Context(), lab); err == nil && info.RDMA == "" {
				warnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
			}
			code, err := live.Exec(cmd.Context(), lab, hosts[0], program)
			var missing *exec.Error
			switch {
			case errors.As(err, &missing):
				return &usageError{err}
			case err == nil && code != 0:
				return exitError(code)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&lab, "lab", lab, "the lab called `LAB`")
	f.IntVarP(&o.hosts, "hosts", "n", 0, "make a fabric of so many hosts and run the program in each")
	f.BoolVar(&once.Plain, "plain", false, "print lines without the host's name before them")
	f.BoolVar(&once.KeepGoing, "keep-going", false, "let the others go on when one fails")
	o.flags(f)
	_ = cmd.RegisterFlagCompletionFunc("lab", completeLabs)
	completeFabric(cmd)
	return cmd
}

func execOnce(cmd *cobra.Command, calledAs string, o *fabricFlags, once live.Program, program []string) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return usagef("%w", err)
	}
	s, err := o.scenario()
	if err != nil {
		return err
	}
	warnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, path)
	once.Args = append([]string{path}, program[1:]...)
	code, err := live.RunProgram(cmd.Context(), s, once)
	if err == nil && code != 0 {
		return exitError(code)
	}
	return err
}
