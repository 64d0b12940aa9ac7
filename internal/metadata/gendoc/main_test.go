// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebpfnet/ebpfnetreceiver/internal/metadata/schema"
)

func TestDocumentationIsGeneratedFromMetadata(t *testing.T) {
	file, err := schema.Read("../../../metadata.yaml")
	require.NoError(t, err)
	documentation, err := os.ReadFile("../../../documentation.md")
	require.NoError(t, err)
	require.Equal(t, string(render(file)), string(documentation), "run: go run ./internal/metadata/gendoc")
}
