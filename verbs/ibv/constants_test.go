//go:build ibverbs && linux && cgo

package ibv

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// notInLibrary matches constants that package verbs has for itself, and those that the headers of
// Debian 12 (rdma-core 44) lack.
var notInLibrary = regexp.MustCompile(`^Cap|^Forever$|^GRHLen$|^MulticastQPN$|Flush(Global|Persistent|Range|MR)?$`)

// libraryPrefixes maps the first words of our names to those of the libraries' names.
var libraryPrefixes = [][2]string{
	{"PortSpace", "RDMA_PS"},
	{"MTU", "IBV_MTU"},
	{"QPType", "IBV_QPT"},
	{"QPState", "IBV_QPS"},
	{"QPAttr", "IBV_QP"},
	{"WCOp", "IBV_WC"},
	{"WC", "IBV_WC"},
	{"Op", "IBV_WR"},
}

// libraryNames has the constants whose names do not follow the rule of libraryName.
var libraryNames = map[string]string{
	"TransportUnspec": "IBV_TRANSPORT_UNSPECIFIED", "AccessOptionalMask": "IBV_ACCESS_OPTIONAL_RANGE", "AccessHugeTLB": "IBV_ACCESS_HUGETLB",
	"GIDTypeRoCEv1": "IBV_GID_TYPE_ROCE_V1", "GIDTypeRoCEv2": "IBV_GID_TYPE_ROCE_V2", "SRQBasic": "IBV_SRQT_BASIC", "SRQXRC": "IBV_SRQT_XRC",
	"OpRDMAWriteImm": "IBV_WR_RDMA_WRITE_WITH_IMM", "OpSendImm": "IBV_WR_SEND_WITH_IMM", "OpSendInv": "IBV_WR_SEND_WITH_INV",
	"OpAtomicFetchAdd": "IBV_WR_ATOMIC_FETCH_AND_ADD", "WCWithGRH": "IBV_WC_GRH",
	"EventPKeyChange": "IBV_EVENT_PKEY_CHANGE", "QPAttrPKeyIndex": "IBV_QP_PKEY_INDEX", "QPAttrQKey": "IBV_QP_QKEY",
	"QPAttrRQPSN": "IBV_QP_RQ_PSN", "QPAttrSQPSN": "IBV_QP_SQ_PSN",
}

var wordStart = regexp.MustCompile(`([a-z])([A-Z0-9])|([A-Z])([A-Z][a-z])`)

// libraryName returns the name of a constant in libibverbs or librdmacm.
func libraryName(name string) string {
	if special := libraryNames[name]; special != "" {
		return special
	}
	prefix := "IBV"
	for _, p := range libraryPrefixes {
		if rest, found := strings.CutPrefix(name, p[0]); found {
			prefix, name = p[1], rest
			break
		}
	}
	for range 2 { // matches of neighbouring words overlap
		name = wordStart.ReplaceAllString(name, "${1}${3}_${2}${4}")
	}
	return prefix + "_" + strings.ToUpper(name)
}

// The provider casts constants of package verbs to those of the libraries. The test compiles a C
// program that prints the latter.
func TestConstantsMatchLibraries(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	var files []*ast.File
	positions := token.NewFileSet()
	for _, path := range must.Get(filepath.Glob("../*[^t].go"))(t) {
		files = append(files, must.Get(parser.ParseFile(positions, path, nil, 0))(t))
	}
	// Without an importer the types of other packages are unknown, which no constant needs.
	pkg, _ := (&types.Config{Error: func(error) {}}).Check("verbs", positions, files, nil)
	var want, print strings.Builder
	for _, name := range pkg.Scope().Names() {
		c, isConstant := pkg.Scope().Lookup(name).(*types.Const)
		if !isConstant || !c.Exported() || notInLibrary.MatchString(name) {
			continue
		}
		value, _ := constant.Int64Val(constant.ToInt(c.Val()))
		fmt.Fprintf(&want, "%s = %d\n", name, value)
		fmt.Fprintf(&print, "printf(\"%s = %%lld\\n\", (long long)%s);\n", name, libraryName(name))
	}
	program := "#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n" + print.String() + "return 0; }\n"
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "constants.c"), filepath.Join(dir, "constants")
	must.Do(t, os.WriteFile(source, []byte(program), 0o644))
	if out, err := exec.Command(compiler, "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := must.Get(exec.Command(binary).Output())(t); string(got) != want.String() {
		t.Errorf("constants of the libraries, by our names:\n%s\nwant\n%s", got, want.String())
	}
}
