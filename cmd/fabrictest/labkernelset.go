package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/kernel"
)

// allGuests is every guest, where one is asked for.
const allGuests = "*"

func newLabKernelSetCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:               "set GUEST up|down|clean|KEY=VALUE...",
		Short:             "Impair, cut or restore the link of a guest",
		Args:              atLeast(2, "name a guest and what is to become of its link, as in 'fabrictest lab kernel set 1 loss=5%'"),
		ValidArgsFunction: completeKernelSet(name),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			who, how := args[0], args[1:]
			id := 0
			if who != allGuests {
				var err error
				if id, err = guestNumber(who); err != nil {
					return err
				}
			}
			link := len(how) == 1 && (how[0] == "up" || how[0] == "down")
			var m kernel.Impairment
			if !link {
				var err error
				if m, err = kernel.ParseImpairment("guest "+who, how); err != nil {
					return err
				}
			}
			remote, err := kernel.Connect(*name)
			if err != nil {
				return err
			}
			ids := []int{id}
			if who == allGuests {
				info, err := remote.Info(ctx)
				if err != nil {
					return err
				}
				ids = ids[:0]
				for _, g := range info.Guests {
					ids = append(ids, g.ID)
				}
			}
			for _, id := range ids {
				if link {
					err = remote.SetLink(ctx, id, how[0] == "up")
				} else {
					err = remote.Impair(ctx, id, m)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// completeKernelSet offers guests, and then what can become of their links.
func completeKernelSet(name *string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeSet(cmd, args, typed)
		}
		words := []cobra.Completion{allGuests}
		if remote, err := kernel.Connect(*name); err == nil {
			if info, err := remote.Info(cmd.Context()); err == nil {
				for _, g := range info.Guests {
					words = append(words, fmt.Sprint(g.ID))
				}
			}
		}
		return beginning(typed, words), cobra.ShellCompDirectiveNoFileComp
	}
}
