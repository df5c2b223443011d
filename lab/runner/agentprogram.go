package runner

import (
	"debug/buildinfo"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// IbverbsTag is the build tag of programs with libibverbs.
const IbverbsTag = "ibverbs"

const howToBuildAgent = "on Linux, with gcc and the packages libibverbs-dev and librdmacm-dev: go build -tags " + IbverbsTag + " -o fabrictest-agent ./cmd/fabrictest, " +
	"and call that program, or name it with --agent-program"

// CheckAgentProgram returns an error if a program cannot be the agent in a guest, because it
// was built without libibverbs. An empty name is this program.
func CheckAgentProgram(program string) error {
	if program == "" {
		if ibv.Linked {
			return nil
		}
		return cmdline.Errorf("this program was built without libibverbs, and cannot drive the device in the guest. Build one that can, %s", howToBuildAgent)
	}
	if err := regularfile.Check(program); err != nil {
		return cmdline.Errorf("--agent-program: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return cmdline.Errorf("--agent-program %s: it is no program that Go has built: %w", program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && slices.Contains(strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' }), IbverbsTag) {
			return nil
		}
	}
	return cmdline.Errorf("--agent-program %s was built without libibverbs. Build one with it, %s", program, howToBuildAgent)
}
