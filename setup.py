"""Package metadata, read from settings.ini: the same file nbdev reads."""

from configparser import ConfigParser
from pathlib import Path

import setuptools

here = Path(__file__).resolve().parent
parser = ConfigParser(delimiters=["="])
parser.read(here / "settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]

setuptools.setup(
    name=settings["lib_name"],
    version=settings["version"],
    description=settings["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=settings["keywords"].split(),
    author=settings["author"],
    author_email=settings["author_email"],
    url=settings["git_url"],
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Framework :: Jupyter",
        "Intended Audience :: Education",
        "Intended Audience :: Developers",
        "Natural Language :: English",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=setuptools.find_packages(include=[settings["lib_path"], settings["lib_path"] + ".*"]),
    python_requires=">=" + settings["min_python"],
    install_requires=settings["requirements"].split(),
    extras_require={key.removesuffix("_requirements"): value.split() for key, value in settings.items() if key.endswith("_requirements")},
    entry_points={"nbdev": ["{0}={0}._modidx:d".format(settings["lib_path"])]},
    include_package_data=True,
    zip_safe=False,
)
