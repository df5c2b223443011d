package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/report"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version it was built with",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine says what this binary was built from, as far as the build tells.
func versionLine() string {
	return fmt.Sprintf("fabrictest %s %s %s/%s", report.ToolVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
