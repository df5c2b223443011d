package main

import (
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/live"
)

func newLabExecCommand(calledAs string) *cobra.Command {
	var o live.FabricOptions
	var once live.Program
	var lab string
	cmd := &cobra.Command{
		Use:               "exec {HOST | -n HOSTS} -- PROGRAM [ARGUMENT...]",
		Short:             "Run a program in the hosts of a fabric",
		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || dash == len(args) {
				return cmdline.Errorf("put the program to run behind --, as in 'fabrictest lab exec -n 2 -- ip address'")
			}
			hosts, program := args[:dash], args[dash:]
			if o.Given("hosts") || o.Like != "" {
				if len(hosts) > 0 {
					return cmdline.Errorf("-n makes a fabric of its own: leave out %s, or -n", hosts[0])
				}
				return execOnce(cmd, calledAs, &o, once, program)
			}
			if len(hosts) != 1 {
				live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
				return cmdline.Errorf("name one host of the lab, as in 'fabrictest lab exec host0 -- %[1]s', or give -n for a fabric of its own, as in 'fabrictest lab exec -n 2 -- %[1]s'", program[0])
			}
			if info, err := live.Query(cmd.Context(), lab); err == nil && info.RDMA == "" {
				live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
			}
			code, err := live.Exec(cmd.Context(), lab, hosts[0], program)
			return programResult(code, err)
		},
	}
	f := cmd.Flags()
	labFlag(cmd, &lab)
	f.IntVarP(&o.Hosts, "hosts", "n", 0, "make a fabric of so many hosts and run the program in each")
	f.BoolVar(&once.Plain, "plain", false, "print lines without the host's name before them")
	f.BoolVar(&once.KeepGoing, "keep-going", false, "let the others go on when one fails")
	fabricFlags(cmd, &o)
	return cmd
}

// execOnce runs a program in each host of a fabric that is created for it.
func execOnce(cmd *cobra.Command, calledAs string, o *live.FabricOptions, once live.Program, program []string) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return cmdline.Errorf("%w", err)
	}
	s, err := o.Scenario()
	if err != nil {
		return err
	}
	live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, path)
	once.Args = append([]string{path}, program[1:]...)
	code, err := live.RunProgram(cmd.Context(), s, once)
	return programResult(code, err)
}
