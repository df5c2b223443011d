package mpi

import (
	"embed"

	"github.com/fabrictest/fabrictest/conformance"
)

//go:embed ledger.yaml
var ledgerFile embed.FS

// Ledger returns the requirements of MPI that a program can observe, with the cases that check each,
// or the reason why none can.
func Ledger() (*conformance.Document, error) {
	docs, err := conformance.ReadLedger(ledgerFile)
	if err != nil {
		return nil, err
	}
	return docs[0], nil
}
