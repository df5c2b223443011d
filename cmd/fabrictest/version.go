package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go version it was built with",
		Example: "  fabrictest version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine says what this binary was built from, as far as the build tells.
func versionLine() string {
	return fmt.Sprintf("fabrictest %s %s %s/%s", toolVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// toolVersion is the version and the commit.
func toolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown) commit unknown"
	}
	version, commit := info.Main.Version, "unknown"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return version + " commit " + commit
}
