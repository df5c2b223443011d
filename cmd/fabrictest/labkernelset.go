package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/kernel"
)

func newLabKernelSetCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:               "set GUEST up|down|clean|KEY=VALUE...",
		Short:             "Impair, cut or restore the link of a guest",
		Args:              atLeast(2, "name a guest and what is to become of its link, as in 'fabrictest lab kernel set 1 loss=5%'"),
		ValidArgsFunction: completeKernelSet(name),
		RunE: func(cmd *cobra.Command, args []string) error {
			return kernel.ChangeLinks(cmd.Context(), *name, args[0], args[1:])
		},
	}
}

// completeKernelSet offers guests, and then what can become of their links.
func completeKernelSet(name *string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeSet(cmd, args, typed)
		}
		words := []cobra.Completion{kernel.AllGuests}
		if remote, err := kernel.Connect(*name); err == nil {
			ids, _ := remote.GuestIDs(cmd.Context())
			for _, id := range ids {
				words = append(words, fmt.Sprint(id))
			}
		}
		return beginning(typed, words), cobra.ShellCompDirectiveNoFileComp
	}
}
