#!/bin/sh
# Remove what no service imports from the packages of a virtual environment: $1 is its folder, medlive is installed in it.
# A third of the image (deploy/README.md, "What is in the image"). `make containers` runs what is left.
set -eu
cd "$1"/lib/python3*/site-packages

# Tests, and what a C compiler would want.
find . -type d \( -name tests -o -name include \) -not -path './medlive/*' -prune -exec rm -r {} +
find . -type f \( -name '*.pxd' -o -name '*.pyx' -o -name '*.a' \) -delete

# Arrow's network protocol and its S3 client: medlive reads and writes Parquet files, and boto3 speaks to S3.
rm -f pyarrow/*flight* pyarrow/libarrow_s3* pyarrow/_s3fs*

# Which town and network a telephone number belongs to: medlive only asks whether it is one.
rm -rf phonenumbers/geodata phonenumbers/carrierdata

# AWS services other than S3 and those that give its keys.
if [ -d botocore/data ]; then
  find botocore/data -mindepth 1 -maxdepth 1 -type d \
    -not -name s3 -not -name sts -not -name sso -not -name sso-oidc -not -name signin -exec rm -r {} +
fi

"$1/bin/python" -c 'import pyarrow.compute, pyarrow.parquet, phonenumbers, medlive'
